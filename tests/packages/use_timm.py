import numpy as np
import timm
import timm.data
import timm.loss
import timm.optim
import timm.scheduler
import timm.utils
import torch

np.random.seed(0)
torch.manual_seed(0)
model = timm.create_model("test_resnet", num_classes=4)
optimizer = timm.optim.create_optimizer_v2(model, "lamb", lr=1e-3)
scheduler = timm.scheduler.CosineLRScheduler(optimizer, t_initial=4)
mixup = timm.data.Mixup(num_classes=4, mixup_alpha=0.2, label_smoothing=0.1)
images, labels = torch.randn(4, 3, 64, 64), torch.tensor([0, 1, 2, 3])
for step in range(2):
    x, y = mixup(images, labels)
    optimizer.zero_grad()
    loss = timm.loss.SoftTargetCrossEntropy()(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step(step)
print(loss.item(), timm.utils.accuracy(model.eval()(images), labels), len(timm.list_models("*vit*")) > 10)
