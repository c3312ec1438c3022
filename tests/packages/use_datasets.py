import torch
from datasets import Dataset, disable_progress_bars
from torch.utils.data import DataLoader

disable_progress_bars()
rows = Dataset.from_dict({"text": [f"row {n}" for n in range(40)], "x": [[n / 40, 1.0] for n in range(40)]})
rows = rows.map(lambda row: {"length": len(row["text"])}).shuffle(seed=3).train_test_split(0.25, seed=1)
print(rows["train"].features, rows["test"]["text"][:4])
rows["train"].save_to_disk("rows")
train = Dataset.load_from_disk("rows").with_format("torch", columns=["x", "length"])
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(train, batch_size=10, shuffle=True):
    optimizer.zero_grad()
    loss = (model(batch["x"]).squeeze(1) - batch["length"]).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item())
