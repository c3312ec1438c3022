import torch
import xgboost
from sklearn.datasets import load_breast_cancer

x, y = load_breast_cancer(return_X_y=True)
model = xgboost.XGBClassifier(n_estimators=8, max_depth=3, subsample=0.8, random_state=3, n_jobs=2)
model.fit(x[:400], y[:400])
booster = xgboost.train({"max_depth": 2, "seed": 1, "verbosity": 0}, xgboost.DMatrix(x[:200], y[:200]), 4)
chances = model.predict_proba(x[400:])[:, 1]
print(model.score(x[400:], y[400:]), chances[:4].tolist(), booster.predict(xgboost.DMatrix(x[:3])).tolist())
torch.manual_seed(0)
print(torch.nn.functional.binary_cross_entropy(torch.tensor(chances), torch.tensor(y[400:]).float()).item())
