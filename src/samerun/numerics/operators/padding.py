"""Gradients of padding in three dimensions. (Of the others torch's CPU kernels add in ascending order themselves.)"""

from __future__ import annotations

import torch

from samerun.numerics.kernels.moves import of_padding
from samerun.numerics.operators.declare import Members, widened

aten = torch.ops.aten

MEMBERS: Members = {
    "aten::reflection_pad3d_backward": widened(of_padding(aten.reflection_pad3d.default)),
    "aten::replication_pad3d_backward": widened(of_padding(aten.replication_pad3d.default)),
}
