"""Part 3: training inside `portable()` ends with the same bits on the CPU and on the device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from workloads import CNN, GPT

import samerun
from gpu_parts.checks import Check, Facts, PartDevice, SkippedCheck
from samerun.numerics.kernels import library

STEPS, EMULATED_STEPS = 20, 2


def make_checks(device: PartDevice) -> Iterator[Check]:
    for name in ("cnn", "gpt"):
        for how in ("plain", *(("in bfloat16", "in a graph") if not device.is_emulated else ())):
            yield Check(f"{name} {how}" if how != "plain" else name, partial(compare_digests, name, how, device), 280)


def compare_digests(name: str, how: str, device: PartDevice) -> Facts:
    steps = EMULATED_STEPS if device.is_emulated else STEPS
    if not library.is_available():
        raise SkippedCheck("samerun's C is not built: on the CPU the reference in NumPy would take hours")
    if how == "in a graph":
        with samerun.portable():
            return {"note": compare_graph_with_steps(name)}
    cast = torch.bfloat16 if how == "in bfloat16" else torch.float32
    with samerun.portable():
        want = train(name, "cpu", steps, cast, device.is_emulated)
    with device.kernels_in_force(), samerun.portable():
        got = train(name, device.torch_name, steps, cast, device.is_emulated)
    wrong = [label for label in want if digest(got[label]) != digest(want[label])]
    assert not wrong, f"after {steps} steps {len(wrong)} of {len(want)} tensors differ, first {wrong[0]}"
    whole = hashlib.sha256("".join(map(digest, want.values())).encode()).hexdigest()[:16]
    return {"note": f"{steps} steps, digest {whole}"}


def digest(x: Tensor) -> str:
    return hashlib.sha256(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def make_model(name: str, small: bool) -> tuple[nn.Module, Callable[[], torch.optim.Optimizer]]:
    torch.manual_seed(0)
    net: nn.Module = CNN() if name == "cnn" else GPT(64, 32, 16 if small else 64, 1 if small else 2)
    if name == "cnn":
        return net, lambda: torch.optim.SGD(net.parameters(), 0.01, 0.9)
    return net, lambda: torch.optim.AdamW(net.parameters(), 1e-3)


def train(name: str, device: str, steps: int, cast: torch.dtype, small: bool) -> dict[str, Tensor]:
    """Parameters and buffers by name; batches are drawn where the model lies."""
    net, make_optimizer = make_model(name, small)
    net.to(device, cast)  # no autocast: torch casts other operators on CUDA than on the CPU
    optimizer = make_optimizer()
    for _ in range(steps):
        x, y = draw_batch(name, device, small)
        loss = compute_loss(name, net, x.to(cast) if x.is_floating_point() else x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {label: value.detach().cpu() for label, value in (*net.named_parameters(), *net.named_buffers())}


def draw_batch(name: str, device: str, small: bool) -> tuple[Tensor, Tensor]:
    if name == "cnn":
        count = 2 if small else 16
        return torch.randn(count, 3, 32, 32, device=device), torch.randint(0, 10, (count,), device=device)
    text = torch.randint(0, 64, (2 if small else 4, 33), device=device)
    return text[:, :-1], text[:, 1:]


def compute_loss(name: str, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y) if name == "cnn" else F.cross_entropy(net(x).flatten(0, 1), y.flatten())


def compare_graph_with_steps(name: str) -> str:
    """Forward and backward captured in a graph and replayed, beside the same steps without: dropout left out."""
    x, y = draw_batch(name, "cuda", False)

    def gradients(captured: bool) -> list[Tensor]:
        net, _ = make_model(name, False)
        net.to("cuda").eval()
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)

        def step() -> None:
            compute_loss(name, net, x, y).backward()

        if captured:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            for parameter in net.parameters():
                parameter.grad.zero_()  # type: ignore[union-attr]
            graph.replay()
        else:
            step()
        torch.cuda.synchronize()
        return [parameter.grad for parameter in net.parameters() if parameter.grad is not None]

    for number, (want, got) in enumerate(zip(gradients(False), gradients(True), strict=True)):
        assert digest(want) == digest(got), f"the gradient of parameter {number} differs"
    return "gradients of a replayed graph"
