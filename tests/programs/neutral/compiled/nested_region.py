# {"switches": [["compile"]], "wrong": true, "nodes": [], "stage": "capture", "origin": "torch", "torch": "2.13"}
"""A nested region reads a global that is set anew in between: the second call is taken for a repetition of the first."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class State:
    def __init__(self, hidden):
        self.hidden = hidden


state = State(torch.zeros(16))


def advance():
    return torch.tanh(state.hidden) + 1


if not CLEAN:
    advance = torch.compiler.nested_compile_region(advance)


class Model(nn.Module):
    def forward(self, x):
        global state
        for _ in range(2):
            state = State(x)
            x = advance()  # WRONG
        return x * 2


model = Model().eval()
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(16))
