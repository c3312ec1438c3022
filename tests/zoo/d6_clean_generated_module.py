# {"cause": "none", "differs": [], "culprit_line": null, "source": "torch_geometric writes its propagate functions so", "reads": []}
# a layer whose code is made from a template, as a module in a temporary file with a random name
import hashlib
import importlib.util
import tempfile
import torch
from torch import nn

TEMPLATE = "import torch\ndef forward(weight, x):\n    return torch.mm(x, weight).relu()\n"


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def module_from(text):
    with tempfile.NamedTemporaryFile("w", prefix="layer_", suffix=".py", delete=False) as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location("layer", file.name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torch.manual_seed(0)
weight = nn.Parameter(torch.randn(6, 6))
forward = module_from(TEMPLATE).forward
opt = torch.optim.SGD([weight], lr=0.02)
for step in range(10):
    loss = (forward(weight, torch.randn(8, 6)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("RESULT", digest(weight))
