"""cuDNN: which convolution algorithms it may choose, and how it chooses."""

from __future__ import annotations

from samerun.control.switches.switch import Policy, make_recording_switch
from samerun.control.switches.torch_flags import choose_on, make_flag_switch

# cuDNN chooses among deterministic convolution algorithms.

DETERMINISTIC = make_flag_switch(
    "cudnn_deterministic",
    "cuDNN takes only convolution algorithms that give the same bits each time.",
    "Some backward algorithms of cuDNN add with atomics. torch.use_deterministic_algorithms does not set this"
    " flag (torch looks at both); it is set so that whoever reads it sees what is in force.",
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    choose_on,
)


# cuDNN does not time convolution algorithms to choose one.


def _choose_cudnn_benchmark(policy: Policy) -> bool | None:
    return False if policy.cudnn_benchmark == "off" else None


BENCHMARK = make_flag_switch(
    "cudnn_benchmark",
    "cuDNN chooses a convolution algorithm by rule, not by timing them.",
    "A timing comes out differently in the next process, and another algorithm gives other bits. Within one"
    ' process the choice stays: who needs no more than that passes cudnn_benchmark="keep" and may leave it on.',
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    _choose_cudnn_benchmark,
)


# How cuDNN's algorithms are chosen: recorded.

HEURISTICS = make_recording_switch(
    "cudnn_heuristics",
    "By which rules cuDNN's algorithms are chosen.",
    "Either choice is the same in every run, as long as the variables are.",
    "before torch",
    "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
    "TORCH_CUDNN_V8_API_DISABLED",
)
