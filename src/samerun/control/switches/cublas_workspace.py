"""The scratch memory of cuBLAS, whose size decides between algorithms."""

from __future__ import annotations

import os

from samerun.control.switches.started import cuda_started
from samerun.control.switches.switch import Policy, Switch, Variable

NAME = "CUBLAS_WORKSPACE_CONFIG"
VALID = (":4096:8", ":16:8", ":4096:2")


def _wanted(policy: Policy) -> str:
    return VALID[0]


def _valid(value: str, policy: Policy) -> bool:
    return value in VALID


def _read() -> str | None:
    # Read as the first cuBLAS handle is made. A value that the program set is taken to have been there.
    return os.environ.get(NAME)


SWITCH = Switch(
    "cublas_workspace",
    "cuBLAS has scratch memory of a fixed size.",
    "The size is one of the things by which cuBLAS chooses an algorithm, and what NVIDIA asks for to make results"
    " reproducible; cuDNN's RNNs and LSTMs ask for it too (:4096:2 or :16:8 are theirs, :4096:8 does as well)."
    " torch 2.13 no longer checks it. Not needed without CUDA.",
    "before CUDA",
    _read,
    variables=(Variable(NAME, _wanted, _valid, ":4096:8, :16:8 or :4096:2", cuda_started, _read),),
)
