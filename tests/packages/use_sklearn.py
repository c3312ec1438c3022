import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

digits = load_digits()
x, x_test, y, y_test = train_test_split(digits.data[:600], digits.target[:600], random_state=0)
linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=50)).fit(x, y)
forest = RandomForestClassifier(n_estimators=10, random_state=0, n_jobs=2).fit(x, y)
print(linear.score(x_test, y_test), forest.score(x_test, y_test))
print(Ridge().fit(x, y).coef_[:8].round(6).tolist())
print(KMeans(4, n_init=1, random_state=0).fit(x).labels_.sum(), cross_val_score(forest, x, y, cv=2).tolist())

torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.tensor(x).float() / 16), torch.tensor(y))
    loss.backward()
    optimizer.step()
print(loss.item())
