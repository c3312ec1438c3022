"""What CUDA, XPU and MTIA share: one generator a device, made when torch first touches the devices.

Before that, torch keeps a seed in a queue. Then the state is that seed, and no device is touched to take or
to set it. Only if torch was never seeded does taking the state start the devices, as `torch.random.fork_rng`
does.
"""

from __future__ import annotations

from typing import Any

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import OtherDevices, Source, State


def device_source(backend: str) -> Source:
    """The source of all devices of `torch.<backend>`. All get the same seed, as with `torch.manual_seed`."""

    def device() -> Any:
        return getattr(imported("torch"), backend)

    def available() -> bool:
        torch = find_imported("torch", backend, "manual_seed")
        module = getattr(torch, backend, None)
        if module is None or not hasattr(module, "manual_seed_all"):
            return False
        return bool(module._is_compiled() and not module._is_in_bad_fork() and module.device_count() > 0)

    def seed(seed: int) -> None:
        device().manual_seed_all(seed)

    def get_state() -> State:
        if not device().is_initialized():
            queued = queued_seed(device())
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
            raise OtherDevices(len(state["devices"]), here)
        device().init()  # first: torch runs a queued seed after a queued state, and would undo it
        device().set_rng_state_all([one.cpu() for one in state["devices"]])

    def dormant() -> bool:
        return not device().is_initialized() and queued_seed(device()) is None

    return Source(f"torch_{backend}", "torch", available, seed, get_state, set_state, dormant=dormant)


def queued_seed(device: Any) -> int | None:
    """The seed that every device of `device` will start from, if torch's queue says so plainly; else None."""
    tracker: Any = getattr(device, "_lazy_seed_tracker", None)
    calls = getattr(tracker, "call_order", None)
    if not calls or calls[-1] is not tracker.manual_seed_all_cb:
        return None
    callback, _ = tracker.manual_seed_all_cb
    names, cells = callback.__code__.co_freevars, callback.__closure__ or ()
    seed = dict(zip(names, (cell.cell_contents for cell in cells), strict=True)).get("seed")
    return seed if isinstance(seed, int) else None
