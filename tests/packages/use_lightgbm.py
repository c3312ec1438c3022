import lightgbm
import torch
from sklearn.datasets import load_diabetes

x, y = load_diabetes(return_X_y=True)
model = lightgbm.LGBMRegressor(n_estimators=10, random_state=2, n_jobs=2, verbose=-1).fit(x[:300], y[:300])
data = lightgbm.Dataset(x[:300], y[:300], free_raw_data=False)
booster = lightgbm.train({"objective": "l1", "verbosity": -1, "seed": 4, "bagging_fraction": 0.5}, data, 5)
values = booster.predict(x[300:])
print(model.predict(x[300:304]).tolist(), values[:3].tolist())
torch.manual_seed(0)
print((torch.tensor(values) - torch.tensor(y[300:])).abs().mean().item())
