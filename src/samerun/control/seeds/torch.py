"""Torch's generators: CPU, CUDA, MPS, XPU, MTIA, and devices from outside torch."""

from __future__ import annotations

from typing import Any

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.random_source import DeviceCountMismatch, RandomSource, State

# `torch.manual_seed` seeds every accelerator too; their own sources stand later in the table and seed them
# again. Torch's CPU generator uses the low 32 bits of a seed.


def _is_torch_imported_with_seeding() -> bool:
    return find_imported_module("torch", "manual_seed", "get_rng_state", "set_rng_state") is not None


def _torch_manual_seed(seed: int) -> None:
    get_imported_module("torch").manual_seed(seed)


def _get_cpu_state() -> State:
    return get_imported_module("torch").get_rng_state()


def _set_cpu_state(state: State) -> None:
    if state.dim() != 1:  # torch itself takes any shape
        raise ValueError(f"it has shape {list(state.shape)}, not one dimension")
    get_imported_module("torch").set_rng_state(state.cpu())  # torch.load(map_location="cuda") moves it


CPU = RandomSource(
    "torch", "torch", _is_torch_imported_with_seeding, _torch_manual_seed, _get_cpu_state, _set_cpu_state
)


# CUDA, XPU and MTIA have one generator per device, made when torch first touches the devices. Before that, torch
# keeps a seed in a queue. Then the state is that seed, and no device is touched to take or to restore it. Only if
# torch was never seeded does taking the state start the devices, as `torch.random.fork_rng` does.


def make_device_source(backend: str) -> RandomSource:
    """The source of all devices of `torch.<backend>`. All get the same seed, as with `torch.manual_seed`."""

    def device() -> Any:
        return getattr(get_imported_module("torch"), backend)

    def available() -> bool:
        torch = find_imported_module("torch", backend, "manual_seed")
        module = getattr(torch, backend, None)
        if module is None or not hasattr(module, "manual_seed_all"):
            return False
        return bool(module._is_compiled() and not module._is_in_bad_fork() and module.device_count() > 0)

    def seed(seed: int) -> None:
        device().manual_seed_all(seed)

    def get_state() -> State:
        if not device().is_initialized():
            queued = find_queued_seed(device())
            if queued is not None:
                return {"seed": queued}
            device().init()
        return {"devices": device().get_rng_state_all()}

    def set_state(state: State) -> None:
        if "seed" in state:
            device().manual_seed_all(state["seed"])
            return
        here = device().device_count()
        if len(state["devices"]) != here:
            raise DeviceCountMismatch(len(state["devices"]), here)
        device().init()  # first: torch runs a queued seed after a queued state, and would undo it
        device().set_rng_state_all([device_state.cpu() for device_state in state["devices"]])

    def starts_device() -> bool:
        return not device().is_initialized() and find_queued_seed(device()) is None

    return RandomSource(f"torch_{backend}", "torch", available, seed, get_state, set_state, starts_device=starts_device)


def find_queued_seed(torch_device_module: Any) -> int | None:
    """Return the seed that torch has queued for all devices of a module such as `torch.cuda`; None if there is none."""
    tracker: Any = getattr(torch_device_module, "_lazy_seed_tracker", None)
    calls = getattr(tracker, "call_order", None)
    if not calls or calls[-1] is not tracker.manual_seed_all_cb:
        return None
    callback, _ = tracker.manual_seed_all_cb
    names, cells = callback.__code__.co_freevars, callback.__closure__ or ()
    seed = dict(zip(names, (cell.cell_contents for cell in cells), strict=True)).get("seed")
    return seed if isinstance(seed, int) else None


CUDA = make_device_source("cuda")  # AMD devices too, which torch calls CUDA
XPU = make_device_source("xpu")
MTIA = make_device_source("mtia")


# Torch's generator of the MPS device (Apple).


def _can_seed_mps() -> bool:
    torch = find_imported_module("torch", "mps", "backends", "manual_seed")
    return torch is not None and bool(torch.backends.mps.is_available() and not torch.mps._is_in_bad_fork())


def _seed_mps(seed: int) -> None:
    get_imported_module("torch").mps.manual_seed(seed)


def _get_mps_state() -> State:
    return get_imported_module("torch").mps.get_rng_state()


def _set_mps_state(state: State) -> None:
    get_imported_module("torch").mps.set_rng_state(state.cpu())


MPS = RandomSource("torch_mps", "torch", _can_seed_mps, _seed_mps, _get_mps_state, _set_mps_state)


# Torch's generators of an accelerator from outside torch (its PrivateUse1 slot: torch_npu, for one).
#
# Uses the functions that torch asks of such a backend. One imported after torch is reached by the next
# `seed_everything`.

_RANDOM_FUNCTIONS = ("manual_seed_all", "get_rng_state", "set_rng_state")
_DEVICE_FUNCTIONS = ("_is_in_bad_fork", "is_available", "device_count")


def _find_privateuse1_module() -> Any | None:
    torch = find_imported_module("torch", "_C", "manual_seed")
    name = getattr(getattr(torch, "_C", None), "_get_privateuse1_backend_name", lambda: "")()
    return getattr(torch, name, None) if name else None


def _can_seed_privateuse1() -> bool:
    device = _find_privateuse1_module()
    if device is None or not all(hasattr(device, need) for need in _RANDOM_FUNCTIONS + _DEVICE_FUNCTIONS):
        return False
    return bool(device.is_available() and not device._is_in_bad_fork())


def _get_privateuse1_module() -> Any:
    return getattr(get_imported_module("torch"), get_imported_module("torch")._C._get_privateuse1_backend_name())


def _seed_privateuse1(seed: int) -> None:
    _get_privateuse1_module().manual_seed_all(seed)


def _get_privateuse1_state() -> State:
    return [_get_privateuse1_module().get_rng_state(index) for index in range(_get_privateuse1_module().device_count())]


def _set_privateuse1_state(state: State) -> None:
    here = _get_privateuse1_module().device_count()
    if len(state) != here:
        raise DeviceCountMismatch(len(state), here)
    for index, device_state in enumerate(state):
        _get_privateuse1_module().set_rng_state(device_state.cpu(), index)


def _is_privateuse1_device_uninitialized() -> bool:
    return not getattr(_get_privateuse1_module(), "is_initialized", lambda: True)()


CUSTOM = RandomSource(
    "torch_custom", "torch", _can_seed_privateuse1, _seed_privateuse1, _get_privateuse1_state, _set_privateuse1_state,
    starts_device=_is_privateuse1_device_uninitialized,
)  # fmt: skip
