import hashlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates
import matplotlib.pyplot as plt
import numpy as np
import torch

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.linspace(0, 1, 32).unsqueeze(1)
losses = []
for _ in range(8):
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
figure, axes = plt.subplots(1, 2)
axes[0].plot(losses)
axes[1].plot(np.arange("2024-01-01", "2024-01-09", dtype="datetime64[D]"), losses)
figure.savefig("losses.png", metadata={"Software": None})
figure.canvas.draw()
print(hashlib.sha256(np.asarray(figure.canvas.buffer_rgba()).tobytes()).hexdigest(), losses[-1])
print(matplotlib.dates.num2date(19000.5))
