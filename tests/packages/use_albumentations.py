import albumentations
import numpy as np
import torch

transform = albumentations.Compose(
    [
        albumentations.RandomCrop(24, 24),
        albumentations.HorizontalFlip(p=0.5),
        albumentations.RandomBrightnessContrast(p=1.0),
        albumentations.GaussNoise(p=1.0),
    ],
    seed=11,
)
image = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3).astype(np.uint8)
crops = np.stack([transform(image=image)["image"] for _ in range(6)])
print(crops.shape, int(crops.sum(dtype=np.int64)))
torch.manual_seed(0)
print(torch.nn.Conv2d(3, 4, 3)(torch.tensor(crops).permute(0, 3, 1, 2) / 255).sum().item())
