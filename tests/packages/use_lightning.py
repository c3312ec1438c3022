import logging

import lightning
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
lightning.seed_everything(0, workers=True, verbose=False)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))

    def training_step(self, batch, _):
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


x = torch.randn(32, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1]), batch_size=8, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    log_every_n_steps=1, default_root_dir="lightning",
)  # fmt: skip
trainer.fit(Regression(), loader)
print(trainer.global_step, trainer.callback_metrics["loss"].item())
