import os

os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=os.getcwd())
import torch
import wandb

torch.manual_seed(0)
run = wandb.init(project="same", config={"lr": 0.1}, settings=wandb.Settings(x_disable_stats=True))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=run.config["lr"])
x = torch.randn(16, 4)
for step in range(4):
    optimizer.zero_grad()
    loss = (model(x) - x[:, :1]).square().mean()
    loss.backward()
    optimizer.step()
    run.log({"loss": loss.item(), "weights": wandb.Histogram(model.weight.detach().numpy())}, step=step)
summary = run.summary["loss"]
run.finish()
print(summary, loss.item(), any(name.startswith("offline-run-") for name in os.listdir("wandb")))
