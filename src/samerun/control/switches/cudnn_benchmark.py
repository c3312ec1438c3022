"""cuDNN does not time convolution algorithms to choose one."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch
from samerun.control.switches.switch import Policy


def _wanted(policy: Policy) -> bool | None:
    return False if policy.cudnn_benchmark == "off" else None


SWITCH = flag_switch(
    "cudnn_benchmark",
    "cuDNN chooses a convolution algorithm by rule, not by timing them.",
    "A timing comes out differently in the next process, and another algorithm gives other bits. Within one"
    ' process the choice stays: who needs no more than that passes cudnn_benchmark="keep" and may leave it on.',
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    _wanted,
)
