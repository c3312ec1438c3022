"""A training: which module's forward is running, which models there are, and what each optimizer step leaves behind.

A step has a root over parameters, gradients, buffers, optimizer state, loss, batch and RNG states.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digests.digest import digest
from samerun.record.digests.state_digests import named_buffers, named_modules, named_parameters
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, MethodCallingBackOnLookup
from samerun.record.watching.recorder import NOTHING, Recorder
from samerun.record.watching.stack_frames import hide_frame_from_warnings


def track_module_calls_and_final_models(recorder: Recorder, torch: Any) -> None:
    """Wrap the one method through which every module is called.

    Global forward hooks would do, but torch.compile warns where it finds some; full backward hooks change
    the bits of gradients.
    """
    names: dict[int, tuple[Any, str]] = {}
    roots: dict[int, Any] = {}
    is_compiling = torch.compiler.is_compiling

    def learn_names(root: Any) -> None:
        known = roots.get(id(root))
        if known is None or known() is not root:  # a model that is gone leaves its number to another
            roots.pop(id(root), None)
            roots[id(root)] = weakref.ref(root)
            recorder.thread_of_root_model.pop(id(root), None)
            if recorder.thread.number > 0:
                recorder.thread_of_root_model[id(root)] = recorder.thread.number
        try:
            for name, module in named_modules(root):
                names[id(module)] = (weakref.ref(module), name or type(root).__name__)
        except Exception:
            names[id(root)] = (weakref.ref(root), type(root).__name__)

    def name_of(module: Any, outermost: bool) -> str:
        known = names.get(id(module))
        if known is None or known[0]() is not module:
            if not outermost:
                return type(module).__name__
            learn_names(module)
            known = names[id(module)]
        return known[1]

    original = torch.nn.Module._call_impl

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        state = recorder.thread
        state.outer_modules.append(state.module)
        state.module = name_of(self, len(state.outer_modules) == 1)
        try:
            if recorder.numbers is not None and len(state.outer_modules) == 1:
                return recorder.numbers.call_root_model_with_switches(original, self, args, kwargs)
            return original(self, *args, **kwargs)
        finally:
            state.module = state.outer_modules.pop()

    _call_impl.__qualname__ = original.__qualname__
    torch.nn.Module._call_impl = hide_frame_from_warnings(_call_impl)
    recorder.root_models = roots
    recorder.fork_callbacks.append(roots.clear)  # what a child does with its parent's model is in its events
    recorder.end_callbacks.append(lambda: record_final_models(recorder))
    # The models of a trace are those that are called in it.
    recorder.cleared_on_restart += [roots, names, recorder.thread_of_root_model]


def record_final_models(recorder: Recorder) -> None:
    """At the end: what every model that was called holds, however it was written.

    In the order in which they were first called; of those that other threads called first, that order is chance.
    """
    recorder.thread.inside_samerun += 1
    if any(reference() is not None for reference in recorder.root_models.values()):
        clear_weak_references_to_unreachable_objects()
    of_threads: list[tuple[str, bytes, int]] = []
    for identity, reference in list(recorder.root_models.items()):
        root = reference()
        if root is None:
            continue
        try:
            tensors = [*named_parameters(root), *named_buffers(root)]
            value = b"".join(name.encode() + digest(t) for name, t in tensors)
        except Exception:  # a lazy module that never saw data
            continue
        final = type(root).__name__, xxh3_128_digest(value), len(tensors)
        if identity in recorder.thread_of_root_model:
            of_threads.append(final)
        else:
            emit_final_model(recorder, *final)
    for final in sorted(of_threads):
        emit_final_model(recorder, *final)
    recorder.thread.inside_samerun -= 1


def clear_weak_references_to_unreachable_objects() -> None:
    """Let weak references to objects in cycles that nothing leads to be dead, as they are where the collector came.

    It comes by how many objects were made, in threads too. The objects themselves are left: a model that is freed frees
    its process group, which the program may not survive at its end.
    """
    flags, kept = gc.get_debug(), len(gc.garbage)
    gc.set_debug(flags | gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
        del gc.garbage[kept:]


def emit_final_model(recorder: Recorder, class_name: str, digest_of_states: bytes, state_count: int) -> None:
    recorder.emit(f.FINAL, name=class_name, inputs=state_count, outputs=digest_of_states, phase=f.BETWEEN)


MODULES = Interceptor("modules", "torch", track_module_calls_and_final_models)


def record_optimizer_steps_and_losses(recorder: Recorder, optimizer_module: Any) -> None:
    """Hook every optimizer's step, and `Tensor.backward` for the loss."""
    import torch

    from samerun.record.digests.torch_guards import no_torch_function
    from samerun.record.watching.kept_tensors import write_sampled_parameters_and_loss
    from samerun.record.watching.step_digests import StepDigester, flag_parameters_on_device

    digester: StepDigester | None = None

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        state = recorder.thread
        state.phase = f.OPTIMIZER
        file, line, _ = stack_frames.find_user_line()
        writer = recorder.writer or recorder.open_writer()
        state.step_location_id = writer.intern_location(file, line, state.module) if writer is not None and line else 0

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal digester
        state = recorder.thread
        state.phase = -1
        if recorder.stopped or state.inside_samerun or is_fake_step_by_torch_checkpoint_loading():
            return
        state.inside_samerun += 1
        try:
            with no_torch_function():
                digester = digester or StepDigester(recorder)
                leaves = digester.digest_step_leaves(optimizer)
                flags = flag_parameters_on_device(optimizer)
                if recorder.step + 1 in recorder.config.snapshot_steps:
                    write_sampled_parameters_and_loss(recorder, optimizer, recorder.step + 1)
        except Exception as error:
            recorder.stop(f"samerun's recorder failed after an optimizer step: {error!r}")
            return
        finally:
            state.inside_samerun -= 1
        recorder.emit_step_and_exit_if_due(leaves, flags)

    optimizer_module.register_optimizer_step_pre_hook(before_step)
    optimizer_module.register_optimizer_step_post_hook(after_step)
    intercept_tensor_backward_to_digest_loss(recorder, torch)


def is_fake_step_by_torch_checkpoint_loading() -> bool:
    """Whether torch itself steps an optimizer, with gradients of zero and no learning rate.

    It does so to have a state into which a checkpoint can be loaded: a resumed training would have one step more.
    """
    module = sys.modules.get("torch.distributed.checkpoint.state_dict")
    code = getattr(getattr(module, "_init_optim_state", None), "__code__", None)
    frame = sys._getframe(1) if code is not None else None
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def intercept_tensor_backward_to_digest_loss(recorder: Recorder, torch: Any) -> None:
    """Record the tensor on which `backward` is called as the loss of the step."""
    from samerun.record.digests.torch_guards import HiddenFromProgram, no_torch_function
    from samerun.record.watching.quick_mode import choose_digest_function

    digest: Callable[[Any], bytes] | None = None

    def record_loss(tensor: Any) -> None:
        nonlocal digest
        state = recorder.thread
        if state.inside_samerun or recorder.stopped or torch.compiler.is_compiling():
            return
        state.inside_samerun += 1
        try:
            digest = digest or choose_digest_function()  # torch must be whole before it is asked for
            with no_torch_function():
                state.last_loss = digest(tensor)
            if recorder.config.snapshot_steps:
                with no_torch_function():
                    single = tensor.numel() == 1 and tensor.is_floating_point()
                with HiddenFromProgram():
                    recorder.last_loss_value = float(tensor.detach()) if single else None
        except Exception:
            state.last_loss = NOTHING
        finally:
            state.inside_samerun -= 1

    torch.Tensor.backward = MethodCallingBackOnLookup(vars(torch.Tensor)["backward"], record_loss)


OPTIMIZER_STEPS = Interceptor("steps", "torch.optim.optimizer", record_optimizer_steps_and_losses)
