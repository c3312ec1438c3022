import glob

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 4)
with SummaryWriter("runs") as writer:
    writer.add_graph(model, x)
    for step in range(4):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss.item(), step)
        writer.add_histogram("weight", model.weight, step)
events = EventAccumulator(max(glob.glob("runs/*"))).Reload()
print(events.Tags()["scalars"], [event.value for event in events.Scalars("loss")])
