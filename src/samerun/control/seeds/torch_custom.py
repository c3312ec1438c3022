"""Torch's generators of an accelerator from outside torch (its PrivateUse1 slot: torch_npu, for one).

Uses the functions that torch asks of such a backend. One imported after torch is reached by the next
`seed_everything`.
"""

from __future__ import annotations

from typing import Any

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import OtherDevices, Source, State

RANDOM = ("manual_seed_all", "get_rng_state", "set_rng_state")
DEVICE = ("_is_in_bad_fork", "is_available", "device_count")


def _device() -> Any | None:
    torch = find_imported("torch", "_C", "manual_seed")
    name = getattr(getattr(torch, "_C", None), "_get_privateuse1_backend_name", lambda: "")()
    return getattr(torch, name, None) if name else None


def _available() -> bool:
    device = _device()
    if device is None or not all(hasattr(device, need) for need in RANDOM + DEVICE):
        return False
    return bool(device.is_available() and not device._is_in_bad_fork())


def _backend() -> Any:
    return getattr(imported("torch"), imported("torch")._C._get_privateuse1_backend_name())


def _seed(seed: int) -> None:
    _backend().manual_seed_all(seed)


def _get_state() -> State:
    return [_backend().get_rng_state(index) for index in range(_backend().device_count())]


def _set_state(state: State) -> None:
    here = _backend().device_count()
    if len(state) != here:
        raise OtherDevices(len(state), here)
    for index, one in enumerate(state):
        _backend().set_rng_state(one.cpu(), index)


def _dormant() -> bool:
    return not getattr(_backend(), "is_initialized", lambda: True)()


SOURCE = Source("torch_custom", "torch", _available, _seed, _get_state, _set_state, dormant=_dormant)
