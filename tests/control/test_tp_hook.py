"""`samerun.tp_comm_hook`: tensor parallelism with the same bits on any number of ranks, and layouts it refuses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from fresh_process import fresh
from repository_paths import PROGRAMS


def run(ranks: int, *words: str) -> str:
    """The digest of losses, gradients and parameters, or the refusal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SAMERUN_", "RANK"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "sharded" / "tensor_parallel_blocks.py"), str(ranks), *words],
        env={**kept, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.exhaustive
def test_one_two_and_four_ranks_compute_the_same() -> None:
    one = run(1)
    assert one.startswith("DIGEST") and one == run(2) == run(4)
    assert run(1, "plain") != run(2, "plain"), "the test would show nothing"


@pytest.mark.exhaustive
def test_two_ranks_compute_the_same_as_one() -> None:
    assert run(1) == run(2)


IN_ONE_PROCESS = """
import json, os, tempfile, torch, samerun
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

dist.init_process_group("gloo", store=dist.FileStore(tempfile.mkdtemp() + "/store", 1), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))


def make(width=16, **plan):
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 16))
    plan = plan or {"1": ColwiseParallel(), "3": RowwiseParallel()}
    return parallelize_module(model, mesh, {name.removeprefix("at"): style for name, style in plan.items()})


def train(model, x):
    model(x).pow(2).sum().backward()
    return [p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in model.parameters()]


def refusal(call):
    try:
        call()
    except samerun.SamerunError as error:
        return error.message
    return ""


def under_autocast():
    model = make()
    samerun.tp_comm_hook(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randn(3, 16))


found = {
    "blocks": refusal(lambda: samerun.tp_comm_hook(make(), blocks=6)),
    "size": refusal(lambda: samerun.tp_comm_hook(make(width=20))),
    "nothing": refusal(lambda: samerun.tp_comm_hook(nn.Linear(2, 2))),
    "sequence": refusal(lambda: samerun.tp_comm_hook(make(at0=SequenceParallel(), at1=ColwiseParallel()))),
    "autocast": refusal(under_autocast),
}
x = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()
plain = train(make(), x)
of_x, x.grad = x.grad, None
hooked = make()
samerun.tp_comm_hook(hooked)
same = train(hooked, x)
found["close"] = all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip([*plain, of_x], [*same, x.grad]))
found["keys"] = list(hooked.state_dict()) == list(make().state_dict())
print(json.dumps(found), flush=True)
# Not through the interpreter's end: the mesh keeps gloo's threads, and one that drops a tensor then aborts, rarely.
os._exit(0)
"""


@pytest.mark.exhaustive
def test_results_are_those_of_torch_but_for_rounding_and_other_layouts_are_refused() -> None:
    found = fresh(IN_ONE_PROCESS)
    assert found["close"] and found["keys"]
    assert "not a power of two" in found["blocks"]
    assert "1 has 20 rows, which 1 ranks cannot compute in 8 blocks" in found["size"]
    assert "no parameter of it is sharded" in found["nothing"]
    assert "0 (LayerNorm)" in found["sequence"] and "under autocast" in found["autocast"]
