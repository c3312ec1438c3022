"""For `samerun check --neutral`: write down what is computed, and set the switches that lie inside the process."""

from __future__ import annotations

from typing import Any

from samerun.record.config import (
    BACK_IN_TRAINING,
    CUT_OFF,
    GRADIENTS_DROPPED,
    RECOMPUTED,
    REGIONS_INSPECTED,
    REGIONS_INSPECTED_CLOSELY,
    RESCALED,
    RESTORED,
    SCHEDULER_STEPPED,
)
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, MethodCallingBackOnLookup, wrap_attribute
from samerun.record.watching.recorder import Recorder

GROUP_FLAGS = {
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""What `foreach` and `fused` of an optimizer's groups are for each implementation; some optimizers have only one."""
SDPA_FLAGS = ("flash", "mem_efficient", "math", "cudnn")
SDPA_BACKENDS = {"math": "math", "flash": "flash", "efficient": "mem_efficient", "cudnn": "cudnn"}


def start_numbers_if_requested(recorder: Recorder, torch: Any) -> None:
    request = recorder.config.numbers
    if request is None:
        return
    from samerun.record.watching.run_numbers.float64_mode import make_tensor_of_python_numbers_wide
    from samerun.record.watching.run_numbers.step_numbers import StepValueRecorder

    numbers = recorder.numbers = StepValueRecorder(recorder, request)
    numbers.enter_float64_or_summary_mode()
    torch.nn.modules.module.register_module_parameter_registration_hook(numbers.models.note_assignment)
    note_lines_undoing_evaluation_mode(recorder, torch)
    note_lines_reading_states_set_in_backward_pass(recorder, torch)
    backend = numbers.switches.get("attention")
    if backend is not None:
        for name in SDPA_FLAGS:
            getattr(torch.backends.cuda, f"enable_{name}_sdp")(name in (SDPA_BACKENDS[backend], "math"))
        torch.backends.mha.set_fastpath_enabled(backend != "math")
    if request.float64:
        wrap_attribute(
            torch, "from_numpy", lambda original: lambda array: cast_half_and_float_to_float64(torch, original(array))
        )
        wrap_attribute(torch, "tensor", make_tensor_of_python_numbers_wide)
    compile_backend = numbers.switches.get("compile")
    if compile_backend is not None and compile_backend != "off":
        replace_compile_backend(recorder, torch, compile_backend)


def note_lines_undoing_evaluation_mode(recorder: Recorder, torch: Any) -> None:
    """Of batch norms that are put into evaluation mode (frozen) and back into training mode, as `model.train()` does,
    with neither a step nor a call without gradients in between."""
    from torch.utils.weak import WeakIdKeyDictionary

    frozen: Any = WeakIdKeyDictionary()

    def wrap_train(original: Any) -> Any:
        def train(self: Any, mode: bool = True) -> Any:
            if recorder.numbers is not None and isinstance(self, torch.nn.modules.batchnorm._BatchNorm):
                moment = recorder.step, recorder.numbers.calls
                if not mode:
                    frozen[self] = moment
                elif frozen.pop(self, None) == moment:
                    recorder.numbers.count_user_line(BACK_IN_TRAINING, stack_frames.find_user_line())
            return original(self, mode)

        return train

    wrap_attribute(torch.nn.Module, "train", wrap_train)


def note_lines_reading_states_set_in_backward_pass(recorder: Recorder, torch: Any) -> None:
    """Where a recomputation of the program's own begins with random states: by the line that read these, if it did."""
    from torch.utils.weak import WeakIdKeyDictionary

    lines_that_read: Any = WeakIdKeyDictionary()

    def wrap_get_rng_state(original: Any) -> Any:
        def get_rng_state() -> Any:
            state = original()
            if recorder.numbers is not None and not stack_frames.is_called_by_torch():
                lines_that_read[state] = stack_frames.find_user_line()
            return state

        return get_rng_state

    def wrap_set_rng_state(original: Any) -> Any:
        def set_rng_state(new_state: Any) -> Any:
            in_backward = torch._C._current_graph_task_id() != -1
            if recorder.numbers is not None and in_backward and not stack_frames.is_called_by_torch():
                line = lines_that_read.get(new_state) or stack_frames.find_user_line()
                recorder.numbers.count_user_line(RESTORED, line)
            return original(new_state)

        return set_rng_state

    for owner in (torch, torch.random):
        wrap_attribute(owner, "get_rng_state", wrap_get_rng_state)
        wrap_attribute(owner, "set_rng_state", wrap_set_rng_state)


def replace_compile_backend(recorder: Recorder, torch: Any, setting: str) -> None:
    """The backend given to torch.compile: as it is, looked into, or another one."""
    inspector: Any = None

    def choose(backend: Any, kwargs: dict[str, Any]) -> Any:
        nonlocal inspector
        if setting == "eager":
            from samerun.record.watching.compiled_graphs.node_lines import interpret_with_lines

            return interpret_with_lines
        if setting not in (REGIONS_INSPECTED, REGIONS_INSPECTED_CLOSELY):
            return setting
        if inspector is None:
            from samerun.record.watching.compiled_graphs.inspector import RegionInspector

            inspector = RegionInspector(recorder, setting == REGIONS_INSPECTED_CLOSELY)
        return inspector.wrap_backend(backend, kwargs.get("mode"), kwargs.get("options"), kwargs.get("dynamic"))

    def wrap_compile(original: Any) -> Any:
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            if setting != "as it is":
                backend = choose(kwargs.get("backend", "inductor"), kwargs)
                kwargs = {name: value for name, value in kwargs.items() if name not in ("mode", "options")}
                kwargs["backend"] = backend
            return original(model, *args, **kwargs)

        return compile

    wrap_attribute(torch, "compile", wrap_compile)


def cast_half_and_float_to_float64(torch: Any, tensor: Any) -> Any:
    return tensor.to(torch.float64) if tensor.dtype in (torch.float32, torch.float16) else tensor


NUMBERS = Interceptor("numbers", "torch", start_numbers_if_requested)


def note_steps_if_requested(recorder: Recorder, optimizer_module: Any) -> None:
    """Before and after every optimizer's step; `Tensor.backward` for the losses."""
    if recorder.config.numbers is None:
        return
    import torch

    from samerun.record.digests.torch_guards import HiddenFromProgram, no_torch_function

    flags = GROUP_FLAGS.get(dict(recorder.config.numbers.switches).get("optimizer-implementation", ""), {})

    def hidden(call: Any) -> Any:
        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
            if recorder.stopped or recorder.numbers is None or recorder.thread.inside_samerun:
                return
            recorder.thread.inside_samerun += 1
            try:
                with no_torch_function():
                    call(optimizer)
            except Exception as error:
                recorder.stop(f"samerun's recorder failed at an optimizer step: {error!r}")
            finally:
                recorder.thread.inside_samerun -= 1

        return hook

    def before_step(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for name, setting in flags.items():
                if name in group:
                    group[name] = setting
                    recorder.numbers.use_counts[f"optimizer {name}"] = 1
        recorder.numbers.before_step(optimizer)

    call_around_step_inside_program_hooks(
        optimizer_module, hidden(before_step), hidden(lambda optimizer: recorder.numbers.after_step(optimizer))
    )

    def note_loss(tensor: Any) -> None:
        if recorder.numbers is None or recorder.thread.inside_samerun or torch.compiler.is_compiling():
            return
        with HiddenFromProgram():
            if tensor.numel() == 1 and tensor.is_floating_point():
                recorder.numbers.losses.append(float(tensor.detach()))

    tensor_type: Any = torch.Tensor
    tensor_type.backward = MethodCallingBackOnLookup(vars(tensor_type)["backward"], note_loss)

    def wrap_zero_grad(original: Any) -> Any:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.numbers is not None and recorder.numbers.losses:
                recorder.numbers.count_user_line(GRADIENTS_DROPPED, stack_frames.find_user_line())
            return original(self, *args, **kwargs)

        return zero_grad

    wrap_attribute(optimizer_module.Optimizer, "zero_grad", wrap_zero_grad)

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if recorder.numbers is not None:
                recorder.numbers.note_optimizer(self, stack_frames.find_user_line_outside_methods_of(self))

        return __init__

    wrap_attribute(optimizer_module.Optimizer, "__init__", wrap_init)


def call_around_step_inside_program_hooks(optimizer_module: Any, before: Any, after: Any) -> None:
    """Call `before(optimizer, args, kwargs)` and `after` right at each step, between the hooks of the program.

    What these do (clip gradients, move an average) another program may do before it calls the step, or after it.
    """
    # torch calls its global hooks outside of an optimizer's own ones, and this method, which does nothing, inside.
    key = "samerun"

    def make_last_of_own_hooks(optimizer: Any, args: Any, kwargs: Any) -> None:
        optimizer._optimizer_step_pre_hooks.pop(key, None)
        optimizer._optimizer_step_pre_hooks[key] = before

    def wrap_step_code(original: Any) -> Any:
        def _optimizer_step_code(self: Any) -> None:
            original(self)
            self._optimizer_step_pre_hooks.pop(key, None)
            after(self, (), {})

        return _optimizer_step_code

    optimizer_module.register_optimizer_step_pre_hook(make_last_of_own_hooks)
    wrap_attribute(optimizer_module.Optimizer, "_optimizer_step_code", wrap_step_code)


STEPS = Interceptor("numbers-steps", "torch.optim.optimizer", note_steps_if_requested)


def note_lines_calling_schedulers_if_requested(recorder: Recorder, scheduler_module: Any) -> None:
    """The lines from which learning-rate schedulers are stepped, and those that make them."""
    if recorder.config.numbers is None:
        return
    from samerun.record.watching.run_numbers.tensor_numbers import read_closures

    def wrap_step(original: Any) -> Any:
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.numbers is not None:
                recorder.numbers.count_user_line(SCHEDULER_STEPPED, stack_frames.find_user_line())
            return original(self, *args, **kwargs)

        return step

    kinds = [kind for kind in vars(scheduler_module).values() if isinstance(kind, type) and "step" in vars(kind)]
    for kind in dict.fromkeys(kinds):
        if kind.__module__ == scheduler_module.__name__:
            wrap_attribute(kind, "step", wrap_step)

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if recorder.numbers is not None:
                names = read_closures(vars(self).get("lr_lambdas", ())).keys()  # set before the base class is asked
                line = stack_frames.find_user_line_that_passes(set(names))
                recorder.numbers.note_scheduler(self, line)
            original(self, *args, **kwargs)

        return __init__

    for kind in (scheduler_module.LRScheduler, scheduler_module.ReduceLROnPlateau):
        wrap_attribute(kind, "__init__", wrap_init)


SCHEDULERS = Interceptor("numbers-schedulers", "torch.optim.lr_scheduler", note_lines_calling_schedulers_if_requested)


def switch_recomputation_if_requested(recorder: Recorder, checkpoint_module: Any) -> None:
    """`torch.utils.checkpoint.checkpoint`: counted, and with the switch `recompute` a plain call."""
    if recorder.config.numbers is None:
        return
    import torch

    plain = dict(recorder.config.numbers.switches).get("recompute") == "plain"
    own = ("use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop")

    def wrap_checkpoint(original: Any) -> Any:
        def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.numbers is not None:
                uses = recorder.numbers.use_counts
                uses["recompute"] = uses.get("recompute", 0) + 1
                if kwargs.get("preserve_rng_state") is False:
                    recorder.numbers.count_user_line(RECOMPUTED, stack_frames.find_user_line())
                given = [value for value in args if isinstance(value, torch.Tensor)]
                is_reentrant = kwargs.get("use_reentrant") is not False and not plain
                if is_reentrant and torch.is_grad_enabled() and not any(t.requires_grad for t in given):
                    recorder.numbers.count_user_line(CUT_OFF, stack_frames.find_user_line())
            if plain:
                return function(*args, **{name: value for name, value in kwargs.items() if name not in own})
            return original(function, *args, **kwargs)

        return checkpoint

    wrap_attribute(checkpoint_module, "checkpoint", wrap_checkpoint)


RECOMPUTATION = Interceptor("numbers-recomputation", "torch.utils.checkpoint", switch_recomputation_if_requested)


def note_scale_changes_if_requested(recorder: Recorder, scaler_module: Any) -> None:
    """The lines that update a GradScaler while gradients wait for their step, which hold the old scale."""
    if recorder.config.numbers is None:
        return

    def wrap_update(original: Any) -> Any:
        def update(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.get_scale() if recorder.numbers is not None and recorder.numbers.losses else None
            original(self, *args, **kwargs)
            if before is not None and self.get_scale() != before:
                recorder.numbers.count_user_line(RESCALED, stack_frames.find_user_line())

        return update

    wrap_attribute(scaler_module.GradScaler, "update", wrap_update)


SCALERS = Interceptor("numbers-scalers", "torch.amp.grad_scaler", note_scale_changes_if_requested)


def switch_autocast_if_requested(recorder: Recorder, autocast_module: Any) -> None:
    """`torch.autocast`: counted, and with the switch `autocast` set to off, disabled."""
    if recorder.config.numbers is None:
        return
    off = dict(recorder.config.numbers.switches).get("autocast") == "off"

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if recorder.numbers is not None and stack_frames.find_user_line().line and self._enabled:
                recorder.numbers.use_counts["autocast"] = recorder.numbers.use_counts.get("autocast", 0) + 1
            if off:
                self._enabled = False

        return __init__

    wrap_attribute(autocast_module.autocast, "__init__", wrap_init)


AUTOCAST = Interceptor("numbers-autocast", "torch.amp.autocast_mode", switch_autocast_if_requested)


def use_eager_random_numbers_if_requested(recorder: Recorder, config_module: Any) -> None:
    """Compiled code draws torch's own random numbers: that it has others of its own is known, and hides all else."""
    if recorder.config.numbers is not None:
        config_module.fallback_random = True


COMPILED_DRAWS = Interceptor("numbers-compiled-draws", "torch._inductor.config", use_eager_random_numbers_if_requested)


def exempt_generated_code_if_float64_mode(recorder: Recorder, output_code: Any) -> None:
    if recorder.config.numbers is None or not recorder.config.numbers.float64:
        return

    def wrap_call(original: Any) -> Any:
        def call(self: Any, inputs: Any) -> Any:
            if recorder.numbers is None:
                return original(self, inputs)
            with recorder.numbers.keep_dtypes_in_generated_code():
                return original(self, inputs)

        return call

    wrap_attribute(output_code.CompiledFxGraph, "__call__", wrap_call)


GENERATED_CODE = Interceptor(
    "numbers-generated-code", "torch._inductor.output_code", exempt_generated_code_if_float64_mode
)
