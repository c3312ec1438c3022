"""cuDNN chooses among deterministic convolution algorithms."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch, on

SWITCH = flag_switch(
    "cudnn_deterministic",
    "cuDNN takes only convolution algorithms that give the same bits each time.",
    "Some backward algorithms of cuDNN add with atomics. torch.use_deterministic_algorithms does not set this"
    " flag (torch looks at both); it is set so that whoever reads it sees what is in force.",
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    on,
)
