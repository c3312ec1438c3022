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

from samerun.record.digests.trees import tree_digest
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.training_states import PARTS, TrainingObjects


def install_checkpoints(recorder: Recorder, torch: Any) -> None:
    def note(kind: int, name: str, value: Any, target: Any) -> None:
        if recorder.stopped or recorder.thread.inside_samerun:
            return
        recorder.thread.inside_samerun += 1
        try:
            outputs = tree_digest(value, torch.Tensor)
        except Exception:
            outputs = b"\0" * 16
        finally:
            recorder.thread.inside_samerun -= 1
        if kind == f.SAVE and recorder.config.receipt and isinstance(target, (str, os.PathLike)):
            # torch's own writer is not seen opening it
            recorder.output_files[os.path.abspath(os.fsdecode(target))] = None
        path = os.path.basename(os.fspath(target)) if isinstance(target, (str, os.PathLike)) else ""
        recorder.emit_host_event(kind, name, aux=str(path), outputs=outputs, user_only=True)

    def wrap_save(original: Any) -> Any:
        def save(obj: Any, f_: Any = None, *args: Any, **kwargs: Any) -> Any:
            if f_ is None and "f" in kwargs:
                f_ = kwargs.pop("f")
            note(f.SAVE, "torch.save", obj, f_)
            return original(obj, f_, *args, **kwargs)

        return save

    def wrap_load(original: Any) -> Any:
        def load(f_: Any = None, *args: Any, **kwargs: Any) -> Any:
            if f_ is None and "f" in kwargs:
                f_ = kwargs.pop("f")
            value = original(f_, *args, **kwargs)
            note(f.LOAD, "torch.load", value, f_)
            return value

        return load

    wrap_attribute(torch, "save", wrap_save)
    wrap_attribute(torch, "load", wrap_load)


CHECKPOINTS = Interceptor("checkpoints", "torch", install_checkpoints)


PUT_BACK = "put-back"
"""A file that says which parts took their states."""


class StateKeeper:
    """Keeps the states of a program's objects, and puts them back."""

    def __init__(self, recorder: Recorder, torch: Any, folder: str, parts: tuple[str, ...]) -> None:
        self.recorder, self.torch, self.folder, self.parts = recorder, torch, folder, parts
        self.save, self.load = torch.save, torch.load
        self.held = TrainingObjects(torch, recorder.own_generators if recorder.own_generators is not None else [])
        self.states: dict[str, Any] | None = None
        self.busy = False

    def file_of(self, value: Any) -> str:
        role = self.recorder.process_role().replace("/", ".")
        return os.path.join(self.folder, f"{role}-{tree_digest(value, self.torch.Tensor).hex()}")

    def saved(self, value: Any) -> None:
        path = self.file_of(value)
        self.save(self.held.states(), path + ".new")
        os.replace(path + ".new", path)

    def loaded(self, value: Any) -> None:
        path = self.file_of(value)
        if os.path.exists(path) and not self.recorder.step:
            self.states = self.load(path, weights_only=True)
            self.put_back()

    def put_back(self) -> None:
        if self.states is None or self.recorder.step:
            return
        taken = self.held.put_back(self.states, [part for part in PARTS if part in self.parts])
        with open(os.path.join(self.folder, PUT_BACK), "a", encoding="utf-8") as file:
            file.writelines(f"{part}\n" for part in taken)

    def quietly(self, call: Any, *args: Any) -> None:
        """What is done here is not the program's doing, and no error of it is the program's."""
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


def install_kept_states(recorder: Recorder, torch: Any) -> None:
    kept = recorder.config.kept
    if kept is None:
        return
    keeper = StateKeeper(recorder, torch, kept.folder, kept.parts)

    def wrap_save(original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            keeper.quietly(keeper.saved, args[0] if args else kwargs["obj"])
            return result

        return save

    def wrap_load(original: Any) -> Any:
        def load(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            keeper.quietly(keeper.loaded, value)
            return value

        return load

    def wrap_load_state_dict(original: Any) -> Any:
        def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
            value = original(self, *args, **kwargs)
            keeper.quietly(keeper.put_back)
            return value

        return load_state_dict

    def wrap_init(objects: list[Any]) -> Any:
        def wrap(original: Any) -> Any:
            def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
                original(self, *args, **kwargs)
                if not any(each is self for each in objects):
                    objects.append(self)
                keeper.quietly(keeper.put_back)

            return __init__

        return wrap

    wrap_attribute(torch, "save", wrap_save)
    wrap_attribute(torch, "load", wrap_load)
    schedulers = [
        kind for kind in vars(torch.optim.lr_scheduler).values()
        if isinstance(kind, type) and issubclass(kind, torch.optim.lr_scheduler.LRScheduler)
    ]  # fmt: skip
    watched = [
        (torch.optim.Optimizer, keeper.held.optimizers),
        (torch.amp.GradScaler, keeper.held.scalers),
        *((kind, keeper.held.schedulers) for kind in schedulers),
    ]
    for kind, objects in watched:
        if "__init__" in vars(kind):
            wrap_attribute(kind, "__init__", wrap_init(objects))
        if "load_state_dict" in vars(kind):
            wrap_attribute(kind, "load_state_dict", wrap_load_state_dict)
    wrap_attribute(torch.nn.Module, "load_state_dict", wrap_load_state_dict)


KEPT_STATES = Interceptor("kept-states", "torch", install_kept_states)
