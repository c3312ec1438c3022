"""Which of the user's lines made an autograd node: its backward belongs to that line. Imports torch."""

from __future__ import annotations

import torch

from samerun.record.watching.thread_state import ThreadState

NODE_RING = (1 << 17) - 1
"""So many autograd nodes back, the line that made a node is remembered."""

_current_node = torch._C._current_autograd_node
_next_sequence = torch._C._autograd._get_sequence_nr


def note_nodes(state: ThreadState, place: int) -> None:
    """Remember the line that made the nodes that are new."""
    now = _next_sequence()
    for number in range(max(state.sequence, now - 64), now):
        state.nodes[number & NODE_RING] = place
    state.sequence = now


def place_of_node(state: ThreadState) -> int:
    """Number of the line that made the node that runs; 0 where none runs or it is not known."""
    node = _current_node()
    return state.nodes.get(node._sequence_nr() & NODE_RING, 0) if node is not None else 0
