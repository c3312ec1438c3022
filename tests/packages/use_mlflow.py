import logging

import mlflow
import torch

logging.getLogger("mlflow").setLevel(logging.ERROR)
logging.getLogger("alembic").setLevel(logging.ERROR)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("same")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 4)
with mlflow.start_run(run_name="first") as run:
    mlflow.log_param("lr", 0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        mlflow.log_metric("loss", loss.item(), step=step)
stored = mlflow.get_run(run.info.run_id)
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
print(stored.data.params, [point.value for point in history], stored.info.status)
