"""`torch.save` and `torch.load`: what was written and read, by the values of its tensors.

The second interceptor is an experiment: a checkpoint holds everything a training continues from, whatever the program
puts into it. At each `torch.save` the states are kept in a file of samerun's own, named after what is saved. After the
`torch.load` that reads the same, up to the first optimizer step, they are put back: right there, whenever the program
loads a state itself, and when it makes an optimizer, a scheduler or a scaler. So putting them back is the last thing
that happens before the training continues.
"""

from __future__ import annotations

import os
from typing import Any

from samerun.record.digests.state_digests import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.training_states import PARTS, NonParameterStates


def intercept_torch_save_and_load(recorder: Recorder, torch: Any) -> None:
    def record_tensors(kind: int, name: str, checkpoint: Any, target: Any) -> None:
        if recorder.stopped or recorder.thread.inside_samerun:
            return
        recorder.thread.inside_samerun += 1
        try:
            outputs = digest_tree(checkpoint, torch.Tensor)
        except Exception:
            outputs = b"\0" * 16
        finally:
            recorder.thread.inside_samerun -= 1
        if kind == f.SAVE and isinstance(target, (str, os.PathLike)):
            # torch's own writer is not seen opening it
            recorder.output_files[os.path.abspath(os.fsdecode(target))] = None
        path = os.path.basename(os.fspath(target)) if isinstance(target, (str, os.PathLike)) else ""
        recorder.emit_host_event(kind, name, aux=str(path), outputs=outputs, only_at_user_code=True)

    def wrap_save(original: Any) -> Any:
        def save(obj: Any, file: Any = None, *args: Any, **kwargs: Any) -> Any:
            if file is None and "f" in kwargs:
                file = kwargs.pop("f")
            record_tensors(f.SAVE, "torch.save", obj, file)
            return original(obj, file, *args, **kwargs)

        return save

    def wrap_load(original: Any) -> Any:
        def load(file: Any = None, *args: Any, **kwargs: Any) -> Any:
            if file is None and "f" in kwargs:
                file = kwargs.pop("f")
            checkpoint = original(file, *args, **kwargs)
            record_tensors(f.LOAD, "torch.load", checkpoint, file)
            return checkpoint

        return load

    wrap_attribute(torch, "save", wrap_save)
    wrap_attribute(torch, "load", wrap_load)


CHECKPOINTS = Interceptor("checkpoints", "torch", intercept_torch_save_and_load)


PUT_BACK = "put-back"
"""A file that says which parts took their states back."""


class StateKeeper:
    """Keeps the states of a program's objects, and puts them back."""

    def __init__(self, recorder: Recorder, torch: Any, folder: str, parts: tuple[str, ...]) -> None:
        self.recorder, self.torch, self.folder, self.parts = recorder, torch, folder, parts
        self.save, self.load = torch.save, torch.load
        self.objects = NonParameterStates(torch, recorder.own_generators if recorder.own_generators is not None else [])
        self.states: dict[str, Any] | None = None
        self.busy = False

    def state_file_for(self, checkpoint: Any) -> str:
        role = self.recorder.process_role_path().replace("/", ".")
        return os.path.join(self.folder, f"{role}-{digest_tree(checkpoint, self.torch.Tensor).hex()}")

    def save_states_for(self, checkpoint: Any) -> None:
        path = self.state_file_for(checkpoint)
        self.save(self.objects.read_training_states_skipping_unreadable(), path + ".new")
        os.replace(path + ".new", path)

    def load_states_for_checkpoint_before_first_step(self, checkpoint: Any) -> None:
        path = self.state_file_for(checkpoint)
        if os.path.exists(path) and not self.recorder.step:
            self.states = self.load(path, weights_only=True)
            self.restore_states_before_first_step()

    def restore_states_before_first_step(self) -> None:
        if self.states is None or self.recorder.step:
            return
        taken = self.objects.try_restore_and_list_restored_parts(
            self.states, [part for part in PARTS if part in self.parts]
        )
        with open(os.path.join(self.folder, PUT_BACK), "a", encoding="utf-8") as file:
            file.writelines(f"{part}\n" for part in taken)

    def call_unrecorded_or_stop(self, call: Any, *args: Any) -> None:
        """Call what is samerun's own doing: nothing of it is recorded, and its errors do not reach the program."""
        if self.busy or self.recorder.thread.inside_samerun or self.recorder.stopped:
            return
        self.busy = True
        self.recorder.thread.inside_samerun += 1
        try:
            call(*args)
        except Exception as error:
            self.recorder.stop(f"samerun could not keep the states of a training: {error!r}")
        finally:
            self.recorder.thread.inside_samerun -= 1
            self.busy = False


def keep_training_states_if_configured(recorder: Recorder, torch: Any) -> None:
    kept = recorder.config.kept_states
    if kept is None:
        return
    keeper = StateKeeper(recorder, torch, kept.folder, kept.parts)

    def wrap_save(original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            keeper.call_unrecorded_or_stop(keeper.save_states_for, args[0] if args else kwargs["obj"])
            return result

        return save

    def wrap_load(original: Any) -> Any:
        def load(*args: Any, **kwargs: Any) -> Any:
            checkpoint = original(*args, **kwargs)
            keeper.call_unrecorded_or_stop(keeper.load_states_for_checkpoint_before_first_step, checkpoint)
            return checkpoint

        return load

    def wrap_set_rng_state(original: Any) -> Any:
        def set_rng_state(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if stack_frames.is_called_by_user():  # else the program's state would stay; a library puts its own back
                keeper.call_unrecorded_or_stop(keeper.restore_states_before_first_step)
            return result

        return set_rng_state

    def wrap_load_state_dict(original: Any) -> Any:
        def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
            checkpoint = original(self, *args, **kwargs)
            keeper.call_unrecorded_or_stop(keeper.restore_states_before_first_step)
            return checkpoint

        return load_state_dict

    def wrap_init(objects: list[Any]) -> Any:
        def wrap(original: Any) -> Any:
            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
                original(self, *args, **kwargs)
                if not any(known is self for known in objects):
                    objects.append(self)
                keeper.call_unrecorded_or_stop(keeper.restore_states_before_first_step)

            return __init__

        return wrap

    wrap_attribute(torch, "save", wrap_save)
    wrap_attribute(torch, "load", wrap_load)
    schedulers = [
        kind for kind in vars(torch.optim.lr_scheduler).values()
        if isinstance(kind, type) and issubclass(kind, torch.optim.lr_scheduler.LRScheduler)
    ]  # fmt: skip
    watched = [
        (torch.optim.Optimizer, keeper.objects.optimizers),
        (torch.amp.GradScaler, keeper.objects.scalers),
        *((kind, keeper.objects.schedulers) for kind in schedulers),
    ]
    for kind, objects in watched:
        if "__init__" in vars(kind):
            wrap_attribute(kind, "__init__", wrap_init(objects))
        if "load_state_dict" in vars(kind):
            wrap_attribute(kind, "load_state_dict", wrap_load_state_dict)
    wrap_attribute(torch.nn.Module, "load_state_dict", wrap_load_state_dict)
    for module in (torch, torch.random):
        wrap_attribute(module, "set_rng_state", wrap_set_rng_state)


KEPT_STATES = Interceptor("kept-states", "torch", keep_training_states_if_configured)
