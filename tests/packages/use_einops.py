import torch
from einops import einsum, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce

torch.manual_seed(0)
images = torch.randn(4, 3, 16, 16)
patches = rearrange(images, "b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4)
model = torch.nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4), torch.nn.Linear(48, 8), Reduce("b n d -> b d", "mean")
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(images).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item(), reduce(patches, "b n d -> b", "max").tolist(), repeat(torch.ones(2), "a -> a b", b=3).shape)
print(einsum(patches, patches, "b i d, b j d -> b i j").sum().item())
