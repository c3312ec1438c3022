import pandas as pd
import torch

torch.manual_seed(0)
frame = pd.DataFrame(
    {"day": pd.date_range("2024-01-01", periods=48, freq="h"), "kind": list("abcd") * 12, "value": range(48)}
)
frame["value"] = frame["value"] * 0.25 + frame["day"].dt.dayofyear
by_kind = frame.groupby("kind")["value"].agg(["mean", "max"])
daily = frame.set_index("day").resample("D")["value"].sum()
print(by_kind.to_csv(), daily.to_csv(), frame.merge(by_kind, on="kind").shape)
print(type(frame["day"][0]).__name__, frame["day"].max() - frame["day"].min(), pd.Timestamp(0))

x = torch.tensor(frame[["value"]].to_numpy(), dtype=torch.float32)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(x) - 2 * x).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item(), model.weight.item())
