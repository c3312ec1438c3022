"""The number of threads that share one operator on the CPU."""

from __future__ import annotations

from samerun.control.seeds.loaded import loaded, present
from samerun.control.switches.switch import Policy, Switch, Variable

_VALUES = "the number given as threads="


def _available() -> bool:
    return loaded("torch", "get_num_threads", "set_num_threads") is not None


def _read() -> int:
    return int(present("torch").get_num_threads())


def _write(value: int) -> None:
    present("torch").set_num_threads(value)


def _wanted(policy: Policy) -> int | None:
    return policy.threads


def _count(policy: Policy) -> str | None:
    return None if policy.threads is None else str(policy.threads)


def _counts_alike(value: str, policy: Policy) -> bool:
    return policy.threads is None or value.split(",")[0].strip() == str(policy.threads)


def _fixed(policy: Policy) -> str | None:
    return None if policy.threads is None else "FALSE"


def _is_fixed(value: str, policy: Policy) -> bool:
    return policy.threads is None or value.upper() in ("FALSE", "0")


SWITCH = Switch(
    "threads",
    "Operators on the CPU are shared by a fixed number of threads.",
    "Long sums, some gradients, svd, eigh, qr and fft are split by the number of threads, and have other bits"
    " with another number. Set only when asked for: deterministic(threads=4). The variables are for libraries"
    " and processes that start later, and a value of your own stays; DataLoader workers have one thread in any case.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    variables=(
        Variable("OMP_NUM_THREADS", _count, _counts_alike, _VALUES, required=False),
        Variable("MKL_NUM_THREADS", _count, _counts_alike, _VALUES, required=False),
        Variable("MKL_DYNAMIC", _fixed, _is_fixed, "FALSE", required=False),
    ),
)
