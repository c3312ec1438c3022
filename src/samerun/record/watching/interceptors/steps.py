"""Optimizer steps: a root over parameters, gradients, buffers, optimizer state, loss, batch and RNG states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import NOTHING, Recorder


def install_optimizer_steps(recorder: Recorder, optimizer_module: Any) -> None:
    """Hook every optimizer's step, and `Tensor.backward` for the loss."""
    import torch

    from samerun.record.digests.torch_guards import no_torch_function
    from samerun.record.watching.kept_tensors import write_step_values
    from samerun.record.watching.step_digests import StepDigester

    digester: StepDigester | None = None

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        state = recorder.thread
        state.phase = f.OPTIMIZER
        file, line, _ = sites.find_user_line()
        writer = recorder.writer or recorder.open_writer()
        state.step_location_id = writer.intern_location(file, line, state.module) if writer is not None and line else 0

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal digester
        state = recorder.thread
        state.phase = -1
        if recorder.stopped or state.inside_samerun:
            return
        state.inside_samerun += 1
        try:
            with no_torch_function():
                digester = digester or StepDigester(recorder)
                leaves = digester.digest_step(optimizer)
                on_device = any(not p.is_cpu for group in optimizer.param_groups for p in group["params"])
                if recorder.step + 1 in recorder.config.snapshot_steps:
                    write_step_values(recorder, optimizer, recorder.step + 1)
        except Exception as error:
            recorder.stop(f"samerun's recorder failed after an optimizer step: {error!r}")
            return
        finally:
            state.inside_samerun -= 1
        recorder.emit_step_leaves(leaves, f.ON_DEVICE if on_device else 0)
        recorder.end_step(xxh3_128_digest(b"".join(value for _, value in leaves)))

    optimizer_module.register_optimizer_step_pre_hook(before_step)
    optimizer_module.register_optimizer_step_post_hook(after_step)
    install_loss_recording(recorder, torch)


def install_loss_recording(recorder: Recorder, torch: Any) -> None:
    """Record the tensor on which `backward` is called as the loss of the step."""
    from samerun.record.digests.torch_guards import HiddenFromProgram, no_torch_function
    from samerun.record.watching.quick_mode import fastest_digest_function

    digest: Callable[[Any], bytes] | None = None

    def record_loss(tensor: Any) -> None:
        nonlocal digest
        state = recorder.thread
        if state.inside_samerun or recorder.stopped or torch.compiler.is_compiling():
            return
        state.inside_samerun += 1
        try:
            digest = digest or fastest_digest_function()  # torch must be whole before it is asked for
            with no_torch_function():
                recorder.last_loss = digest(tensor)
            if recorder.config.snapshot_steps:
                with no_torch_function():
                    single = tensor.numel() == 1 and tensor.is_floating_point()
                with HiddenFromProgram():
                    recorder.last_loss_value = float(tensor.detach()) if single else None
        except Exception:
            recorder.last_loss = NOTHING
        finally:
            state.inside_samerun -= 1

    torch.Tensor.backward = _CallOnLookup(torch.Tensor.backward, record_loss)


class _CallOnLookup:
    """A method that calls `on_lookup` when it is looked up on an object, which is right before it is called.

    A wrapper function would add a stack frame: to the program's tracebacks, and to what `stacklevel` counts, so that a
    warning would name another line.
    """

    def __init__(self, method: Any, on_lookup: Callable[[Any], None]) -> None:
        self.method, self.on_lookup = method, on_lookup

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        if instance is not None:
            self.on_lookup(instance)
        return self.method.__get__(instance, kind)


INTERCEPTOR = Interceptor("steps", "torch.optim.optimizer", install_optimizer_steps)
