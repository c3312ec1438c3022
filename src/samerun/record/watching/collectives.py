"""Collectives that go on after they were started, and handles with which the program waits for them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from samerun.base.user_code import SAMERUN_FOLDER
from samerun.record import pins
from samerun.record.digests.storages import PendingCollective, StorageDigests, WrittenByCollective
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.watched_operator import WatchedOperator

IN_FLIGHT_READ = "read before wait"
"""Name of the event that an operator read memory to which a collective that nobody waited for may still write."""
UNAWAITED_MESSAGE = "message read before wait"
"""The same of a message from another rank. It is at the line that receives: any other may read, backward too."""
MESSAGES = ("send", "recv")
"""Parts of the names of operators that wait for one other rank: to wait for one at once may be a deadlock."""
_TORCH_FILE = "distributed_c10d.py"
waited_early: list[Any] = []
"""Handles of messages that were waited for at the first read, with the pin `waited`: gloo hangs if one is waited for
again."""


def record_if_read_before_wait(recorder: Recorder, storages: StorageDigests, tensor: Any, name: str) -> None:
    """Record that an operator reads memory that a collective may still be writing to, if that is known.

    With the pin `waited` a message is waited for here, which cannot block what waiting after the read would not.
    """
    for work, line in storages.list_pending_collectives_writing_to(tensor):
        event_name = UNAWAITED_MESSAGE if line else IN_FLIGHT_READ
        at = stack_frames.UserLine(*line) if line else None
        recorder.emit_host_event(f.FACT, event_name, aux=name, thin_repeats=True, user_line=at)
        if pins.WAITED in recorder.config.pins:
            work.wait()
            waited_early.append(work)


def note_pending_collective_from_python(
    recorder: Recorder, storages: StorageDigests, out: Any, written: list[WrittenByCollective], name: str
) -> None:
    """Remember the handle that a collective gave, if Python code has started it: then Python code waits for it.

    What torch starts in C++ (the reducer of DistributedDataParallel) it also waits for there, which nobody sees.
    """
    import torch

    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(SAMERUN_FOLDER):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.endswith(_TORCH_FILE):
        return
    handle = out[-1] if isinstance(out, (tuple, list)) and out else out
    if not isinstance(handle, torch.ScriptObject):
        return
    unbox: Any = torch._C._distributed_c10d.Work.unbox
    work = unbox(handle)
    is_message = any(part in name for part in MESSAGES)
    line = stack_frames.find_user_line() if is_message else None
    storages.note_pending_collective(PendingCollective(work, line), written)
    if pins.WAITED in recorder.config.pins and not is_message:
        work.wait()


def find_process_group(values: Iterable[Any]) -> Any:
    """The process group among the arguments of a collective; None if there is none."""
    from torch import ScriptObject
    from torch.distributed import ProcessGroup, distributed_c10d

    for value in values:
        if isinstance(value, ProcessGroup):
            return value
        if isinstance(value, ScriptObject) and "ProcessGroup" in str(value._type()):
            return ProcessGroup.unbox(value)
        if is_process_group_name(value):
            resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
            return resolve(value)
    return None


def is_process_group_name(value: Any) -> bool:
    """Whether a value is the name by which functional collectives know a process group: ranks of groups that are alike
    have other names."""
    from torch.distributed import distributed_c10d

    return isinstance(value, str) and value in distributed_c10d._world.pg_names.values()


def record_collective(recorder: Recorder, operator: WatchedOperator, args: Any, kwargs: Any, location_id: int) -> None:
    """Record which ranks an operator brings together, so that what they do can be ordered."""
    given = dict(zip((argument.name for argument in operator.func._schema.arguments), args, strict=False))
    given.update(kwargs or {})
    group = find_process_group(given.values())
    if group is None:
        return
    name = operator.name.split(".")[1]
    if name == "batch_p2p_ops":
        messages = list(zip(given["op_list"], given["peer_list"], given["tag_list"], strict=True))
        for at, (what, peer, tag) in enumerate(messages):
            behind = location_id, len(messages) - at
            emit_message(recorder, f.RECEIVES if f.RECEIVES in what else f.SENDS, group, peer, tag, *behind)
    elif f.SENDS in name or f.RECEIVES in name:
        peer = given.get("dst", given.get("src"))
        if peer is not None:  # else the message is of whoever is first: `wrap_recv` knows whose it was
            emit_message(
                recorder, f.RECEIVES if f.RECEIVES in name else f.SENDS, group, peer, given["tag"], location_id, 1
            )
    else:
        emit_collective(recorder, group, location_id, 1)


def emit_collective(recorder: Recorder, group: Any, location_id: int = 0, events_behind: int = 0) -> None:
    """Record that this rank takes part in a collective of the group. `events_behind`: up to its operator."""
    _emit(recorder, "collective", format_group_name_and_ranks(group), location_id, events_behind)


def emit_message(
    recorder: Recorder,
    send_or_recv: str,
    group: Any,
    peer_group_rank: int,
    tag: int,
    location_id: int = 0,
    events_behind: int = 0,
) -> None:
    """Record a message to or from another rank of the group, by its number there."""
    sender, receiver = (group.rank(), peer_group_rank) if send_or_recv == f.SENDS else (peer_group_rank, group.rank())
    who = f"{format_group_name_and_ranks(group)}: {sender} to {receiver}, tag {tag}"
    _emit(recorder, send_or_recv, who, location_id, events_behind)


def _emit(recorder: Recorder, what: str, participants: str, location_id: int, events_behind: int) -> None:
    writer = recorder.writer or recorder.open_writer()
    if writer is not None:
        aux = writer.intern_string(participants)
        recorder.emit(f.COLLECTIVE, name=what, aux=aux, location_id=location_id, inputs=events_behind)


def format_group_name_and_ranks(group: Any) -> str:
    """Name and ranks of a process group: the same on all its ranks, and another for each group."""
    from torch.distributed import distributed_c10d

    ranks = sorted(distributed_c10d._world.pg_group_ranks.get(group, {}))
    parts, begin = [], 0
    for at in range(1, len(ranks) + 1):
        if at == len(ranks) or ranks[at] != ranks[at - 1] + 1:
            first, last = ranks[begin], ranks[at - 1]
            parts.append(f"{first}" if first == last else f"{first}-{last}")
            begin = at
    return f"{group.group_name} of {','.join(parts) or group.size()}"
