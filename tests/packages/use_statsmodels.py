import numpy as np
import statsmodels.api as sm
import statsmodels.formula.api as smf
import torch

rng = np.random.default_rng(1)
x = rng.standard_normal((80, 2))
y = x @ [1.5, -0.5] + 0.1 * rng.standard_normal(80)
fit = sm.OLS(y, sm.add_constant(x)).fit()
logit = smf.logit("k ~ a", {"k": (y > 0).astype(int), "a": x[:, 0]}).fit(disp=0)
print(fit.params.round(8), fit.rsquared.round(8), logit.params.round(6).to_dict())
print(sm.tsa.ARIMA(y[:40], order=(1, 0, 0)).fit().params.round(3))
torch.manual_seed(0)
print(torch.nn.Linear(2, 1)(torch.tensor(x).float()).sum().item())
