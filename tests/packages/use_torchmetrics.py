import torch
import torchmetrics

torch.manual_seed(0)
logits, labels = torch.randn(64, 5), torch.randint(0, 5, (64,))
metrics = torchmetrics.MetricCollection(
    {
        "accuracy": torchmetrics.Accuracy("multiclass", num_classes=5),
        "f1": torchmetrics.F1Score("multiclass", num_classes=5, average="macro"),
        "auroc": torchmetrics.AUROC("multiclass", num_classes=5),
        "confusion": torchmetrics.ConfusionMatrix("multiclass", num_classes=5),
    }
)
for at in range(0, 64, 16):
    metrics.update(logits[at : at + 16], labels[at : at + 16])
print({name: value.tolist() for name, value in metrics.compute().items()})
print(torchmetrics.MeanSquaredError()(logits[:, 0], logits[:, 1]).item())
