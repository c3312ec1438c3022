import hashlib

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file, save_model

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1, dtype=torch.float32))
save_file(model.state_dict(), "model.safetensors", metadata={"kind": "test"})
save_model(model, "again.safetensors")
with open("model.safetensors", "rb") as file:
    print(hashlib.sha256(file.read()).hexdigest())
with safe_open("model.safetensors", framework="pt") as file:
    print(sorted(file.keys()), file.metadata(), file.get_slice("0.weight")[:2].sum().item())
model.load_state_dict(load_file("again.safetensors"))
print(model(torch.ones(1, 4)).item())
