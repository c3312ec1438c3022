"""TorchScript: a scripted function, a scripted module, a traced one."""

import io

import torch


@torch.jit.script
def clipped_sum(x: torch.Tensor, limit: float) -> torch.Tensor:
    total = torch.zeros(())
    for row in x:
        total = total + row.sum().clamp(-limit, limit)
    return total


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        if bool(x.sum() > 0):
            return self.linear(x)
        return -self.linear(x)


torch.manual_seed(1)
x = torch.randn(3, 4)
print(clipped_sum(x, 0.5).item())

gate = torch.jit.script(Gate())
optimizer = torch.optim.SGD(gate.parameters(), lr=0.1)
for _ in range(4):
    loss = gate(torch.randn(3, 4)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

buffer = io.BytesIO()
torch.jit.save(gate, buffer)
buffer.seek(0)
print(torch.equal(torch.jit.load(buffer)(x), gate(x)))
print(torch.jit.trace(torch.nn.Linear(4, 2), x)(x).sum().item())


class Convolves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv1d(4, 4, 3)

    def forward(self, x):
        return self.convolution(x).relu()

    def doubled(self, x):
        return self.convolution(x) * 2


signal = torch.randn(1, 4, 9)
traced = torch.jit.trace_module(Convolves(), {"forward": signal, "doubled": signal})
print(traced(signal).sum().item(), traced.doubled(signal + 1).sum().item())
print(len(list(torch.jit._get_trace_graph(Convolves(), signal)[0].nodes())) > 2)
