"""NumPy's global generator (`numpy.random.rand` and the like; scikit-learn, SciPy and pandas default to it).

`numpy.random.default_rng()` objects are not global: no tool can reach them; give each its own seed.
"""

from __future__ import annotations

from typing import Any

from samerun.control.imported import find_imported, get_imported
from samerun.control.seeds.source import RandomSource, State


def _can_seed_numpy() -> bool:
    # NumPy 2 loads its numpy.random only when asked for, as here.
    return find_imported("numpy", "random") is not None


def _seed_numpy(seed: int) -> None:
    random = get_imported("numpy").random
    kind = type(random.get_bit_generator())
    if kind.__name__ == "MT19937":
        random.seed([seed & 0xFFFFFFFF, seed >> 32])
    else:  # the user has installed another one, which `seed` refuses
        random.set_bit_generator(kind(seed))


def _get_numpy_state() -> State:
    return _arrays_to_lists(get_imported("numpy").random.get_state(legacy=False))


def _set_numpy_state(state: State) -> None:
    position = state["state"].get("pos")
    if position is not None and not 0 <= position <= 624:  # NumPy would read beyond its state
        raise ValueError(f"its position is {position!r}, which is not from 0 to 624")
    get_imported("numpy").random.set_state(state)


def _arrays_to_lists(value: Any) -> Any:
    """Arrays as lists: `torch.load(weights_only=True)` refuses arrays, NumPy takes lists back."""
    if isinstance(value, dict):
        return {key: _arrays_to_lists(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


SOURCE = RandomSource("numpy", "numpy", _can_seed_numpy, _seed_numpy, _get_numpy_state, _set_numpy_state)
