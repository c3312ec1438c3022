"""Every operator that computes: forward, backward, optimizer."""

from __future__ import annotations

from typing import Any

from samerun.record.digests.digest import is_readable
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, torch: Any) -> None:
    """Enter the recording mode in this thread; other threads enter it when they start."""
    import torch.utils._python_dispatch as dispatch

    from samerun.record.watching.operator_mode import OperatorMode, OperatorTable
    from samerun.record.watching.quick_mode import mode_of
    from samerun.record.watching.uncompiled import leave_alone

    table = OperatorTable(recorder)
    memory = recorder.config.fresh_memory
    leave_alone(OperatorMode.__torch_dispatch__)

    def make() -> OperatorMode:
        if recorder.doubling is None:
            return mode_of(table)
        return DoubleMode(table, recorder.doubling)

    if recorder.config.executions:
        from samerun.record.watching.double.doubling import Doubling
        from samerun.record.watching.double.mode import DoubleMode

        leave_alone(DoubleMode.__torch_dispatch__)
        recorder.doubling = Doubling(recorder)

    def enter() -> None:
        """Enter the mode in this thread, once."""
        if recorder.thread.mode is None:
            mode: Any = make()
            recorder.thread.mode = mode
            mode.__enter__()

    def leave() -> None:
        """Leave the mode, if nothing was entered on top of it; else it stays and records nothing."""
        mode = recorder.thread.mode
        top: Any = dispatch._get_current_dispatch_mode()
        if mode is not None and memory is None and top is mode:
            mode.__exit__(None, None, None)
            recorder.thread.mode = None

    def step_ended() -> None:
        table.storages.epoch += 1
        if recorder.recording:
            enter()
        else:
            leave()

    if recorder.config.replay is not None:
        from samerun.record.watching.replay import Replayer

        recorder.replayer = Replayer(recorder, recorder.config.replay)
    recorder.on_step.append(step_ended)
    recorder.enter_operators, recorder.leave_operators = enter, leave
    if recorder.recording or memory is not None:
        enter()
    recorder.forget_values = table.storages.forget
    for name in ("numpy", "__dlpack__"):
        watch_sharing(recorder, table, torch.Tensor, name)
    for name in ("_share_fd_cpu_", "_share_filename_cpu_"):  # `share_memory_`, and what goes to other processes
        watch_sharing(recorder, table, torch.UntypedStorage, name)
    for name in ("resize_", "fill_", "copy_", "__setitem__", "_set_from_file"):
        watch_sharing(recorder, table, torch.UntypedStorage, name)


def watch_sharing(recorder: Recorder, table: Any, owner: Any, name: str) -> None:
    """From `tensor.numpy()` and the like on, others can write to the memory without an operator.

    Methods of a storage change its memory at once.
    """
    original = getattr(owner, name)

    def sharing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.thread.inside and not recorder.stopped:
            try:
                if not hasattr(self, "untyped_storage"):
                    table.storages.changed(self)
                elif is_readable(self):
                    table.storages.shared(self.untyped_storage())
            except Exception as error:
                recorder.stop(f"samerun's recorder failed at {owner.__name__}.{name}: {error!r}")
        return original(self, *args, **kwargs)

    sharing.__name__, sharing.__qualname__, sharing.__doc__ = name, f"{owner.__name__}.{name}", original.__doc__
    setattr(owner, name, sharing)


INTERCEPTOR = Interceptor("operators", "torch", install)
