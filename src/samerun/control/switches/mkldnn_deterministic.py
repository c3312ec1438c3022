"""oneDNN's deterministic kernels, on CPUs and Intel GPUs."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch, on

SWITCH = flag_switch(
    "mkldnn_deterministic",
    "oneDNN (CPU and Intel GPU kernels) takes only deterministic algorithms.",
    "The flag is off after torch.use_deterministic_algorithms(True) and has to be set by itself.",
    ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
    on,
)
