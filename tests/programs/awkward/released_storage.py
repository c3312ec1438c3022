"""Memory that is given back while tensors still stand on it, and views that are larger than all memory."""

import numpy as np
import torch

torch.manual_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
        self.register_buffer("expanded", torch.ones(1, 3).expand(10**11, 3))
        self.register_buffer("repeated", torch.arange(10.0).as_strided((10**6, 10**6), (0, 0), 3))
        self.register_buffer("offloaded", torch.ones(60, 60))
        self.register_buffer("cut", torch.ones(60, 60))

    def forward(self, x):
        return self.inner(x).sum() * self.expanded[7, 1]


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).backward()
    optimizer.step()
    batch = {"rows": np.broadcast_to(np.ones(3), (10**10, 3)), "view": torch.ones(1).expand(10**12)}
    print(float(torch.utils.data.default_convert(batch["view"])[5:].select(0, 3) + 1))
for (view,) in torch.utils.data.DataLoader([(torch.ones(1).expand(10**12),)], batch_size=None):
    print(view.shape)

gathered = torch.randn(100)
doubled = gathered * 2
for _ in range(2):  # what FSDP does with what it has gathered
    gathered.untyped_storage().resize_(0)
    gathered.untyped_storage().resize_(400)
    gathered.copy_(doubled)
    print(float(gathered.sum()))
model.offloaded.untyped_storage().resize_(0)
model.cut.untyped_storage().resize_(64)
model.inner.weight.untyped_storage().resize_(0)
transposed = doubled.view(10, 10).t()
gathered.untyped_storage().resize_(0)
doubled.untyped_storage().resize_(8)
optimizer.zero_grad(set_to_none=True)
optimizer.step()
print("end")
