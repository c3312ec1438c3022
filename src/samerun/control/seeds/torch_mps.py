"""Torch's generator of the MPS device (Apple)."""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import Source, State


def _available() -> bool:
    torch = find_imported("torch", "mps", "backends", "manual_seed")
    return torch is not None and bool(torch.backends.mps.is_available() and not torch.mps._is_in_bad_fork())


def _seed(seed: int) -> None:
    imported("torch").mps.manual_seed(seed)


def _get_state() -> State:
    return imported("torch").mps.get_rng_state()


def _set_state(state: State) -> None:
    imported("torch").mps.set_rng_state(state.cpu())


SOURCE = Source("torch_mps", "torch", _available, _seed, _get_state, _set_state)
