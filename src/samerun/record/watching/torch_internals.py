"""What the recorder takes from torch's private interface: autograd nodes, and the compiler's rules. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from samerun.record.watching.thread_state import ThreadState

NODE_RING = (1 << 17) - 1
"""So many autograd nodes back, the line that made a node is remembered."""

_current_node = torch._C._current_autograd_node
_next_sequence = torch._C._autograd._get_sequence_nr


def remember_new_nodes(state: ThreadState, location_id: int) -> None:
    """Remember the line that made the nodes that are new."""
    now = _next_sequence()
    for number in range(max(state.last_sequence, now - 64), now):
        state.node_location_ids[number & NODE_RING] = location_id
    state.last_sequence = now


def location_of_running_node(state: ThreadState) -> int:
    """Number of the line that made the node that runs; 0 where none runs or it is not known."""
    node = _current_node()
    return state.node_location_ids.get(node._sequence_nr() & NODE_RING, 0) if node is not None else 0


class UncompiledMode:
    """What a dispatch mode of the recorder has in common: compiled programs stay compiled under it."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first operator


def exclude_from_compilation(*functions: Any) -> None:
    """torch.compile leaves these functions, and all that they call, as they are."""
    try:
        frames: Any = torch._C._dynamo.eval_frame
        never = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for function in functions:
            frames.set_code_exec_strategy(function.__code__, never)
    except (AttributeError, TypeError):
        pass  # another torch: the compiler then takes the recorder for the user's code and gives up on it
