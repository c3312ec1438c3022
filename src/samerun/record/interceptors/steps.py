"""Optimizer steps: one root per step over parameters, gradients, buffers, optimizer state, loss, batch, RNG."""

from __future__ import annotations

import sys
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record import format as f
from samerun.record.digest import dense_digest, digest
from samerun.record.interceptor import Interceptor
from samerun.record.recorder import NOTHING, Recorder


def install(recorder: Recorder, optimizer_module: Any) -> None:
    """Hook every optimizer's step, and `Tensor.backward` for the loss."""
    import torch

    tensor_type = torch.Tensor
    state = recorder.thread

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        state.phase = f.OPTIMIZER

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        state.phase = -1
        if recorder.stopped or state.inside:
            return
        state.inside += 1
        try:
            leaves = list(leaves_of(optimizer))
        except Exception as error:
            recorder.stop(f"samerun's recorder failed after an optimizer step: {error!r}")
            return
        finally:
            state.inside -= 1
        for name, value in leaves:
            recorder.emit(f.LEAF, name=name, outputs=value, phase=f.BETWEEN)
        recorder.step_done(xxh3_128_digest(b"".join(value for _, value in leaves)))

    def leaves_of(optimizer: Any) -> Any:
        """(name, digest) of every leaf, in a fixed order."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        yield "params", join(digest(p) for p in parameters)
        yield "grads", join(digest(p.grad) if p.grad is not None else NOTHING for p in parameters)
        yield "buffers", join(digest(b) for b in buffers())
        yield "optimizer", join(state_digests(optimizer, parameters))
        yield "loss", recorder.last_loss
        yield "batch", recorder.last_batch
        yield from rng_states()

    def state_digests(optimizer: Any, parameters: Any) -> Any:
        for parameter in parameters:
            held = optimizer.state.get(parameter)
            for key in held or ():
                value = held[key]
                yield digest(value) if isinstance(value, tensor_type) else plain(value)
        for group in optimizer.param_groups:
            for key, value in group.items():
                if key != "params":
                    yield digest(value) if isinstance(value, tensor_type) else plain(value)

    def buffers() -> Any:
        for reference in list(recorder.roots.values()):
            root = reference()
            if root is not None:
                yield from root.buffers()

    def rng_states() -> Any:
        """Torch's generators, NumPy's, Python's: a leaf each."""
        states = [dense_digest(torch.get_rng_state(), 0)]
        if torch.cuda.is_initialized():
            states += [dense_digest(value, 0) for value in torch.cuda.get_rng_state_all()]
        yield "rng", join(states)
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            now = numpy_random.get_state(legacy=False)
            value = now["state"]
            if isinstance(value, dict) and "key" in value:
                words = value["key"].tobytes()
                yield "rng.numpy", xxh3_128_digest(words + repr((value["pos"], now["gauss"])).encode())
        python = sys.modules.get("random")
        if python is not None:
            version, numbers, gauss = python.getstate()
            # hash() of a tuple of whole numbers does not depend on the hash seed
            yield "rng.python", xxh3_128_digest(f"{version}{hash(numbers)}{gauss}".encode())

    optimizer_module.register_optimizer_step_pre_hook(before)
    optimizer_module.register_optimizer_step_post_hook(after)

    original = tensor_type.backward

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not state.inside and not recorder.stopped and not torch.compiler.is_compiling():
            state.inside += 1
            try:
                recorder.last_loss = digest(self)
            except Exception:
                recorder.last_loss = NOTHING
            finally:
                state.inside -= 1
        return original(self, *args, **kwargs)

    backward.__name__, backward.__qualname__, backward.__doc__ = "backward", "Tensor.backward", original.__doc__
    tensor_type.backward = backward


def plain(value: Any) -> bytes:
    if value is None or isinstance(value, (bool, int, float, str, tuple)):
        return xxh3_128_digest(repr(value).encode())
    return NOTHING


def join(parts: Any) -> bytes:
    return xxh3_128_digest(b"".join(parts))


INTERCEPTOR = Interceptor("steps", "torch.optim.optimizer", install)
