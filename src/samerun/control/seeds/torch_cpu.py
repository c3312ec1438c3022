"""Torch's default CPU generator.

`torch.manual_seed` seeds every accelerator too; their own sources stand later in the table and seed them
again. Torch's CPU generator uses the low 32 bits of a seed.
"""

from __future__ import annotations

from samerun.control.imported import find_imported, imported
from samerun.control.seeds.source import Source, State


def _available() -> bool:
    return find_imported("torch", "manual_seed", "get_rng_state", "set_rng_state") is not None


def _seed(seed: int) -> None:
    imported("torch").manual_seed(seed)


def _get_state() -> State:
    return imported("torch").get_rng_state()


def _set_state(state: State) -> None:
    if state.dim() != 1:  # torch itself takes any shape
        raise ValueError(f"it has shape {list(state.shape)}, not one dimension")
    imported("torch").set_rng_state(state.cpu())  # torch.load(map_location="cuda") moves it


SOURCE = Source("torch", "torch", _available, _seed, _get_state, _set_state)
