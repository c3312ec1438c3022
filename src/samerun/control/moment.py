"""Where all streams of the process stand at one moment, to go back to it in the same process."""

from __future__ import annotations

from dataclasses import dataclass

from samerun.control.snapshot import RNGState, set_rng_state, states_of
from samerun.control.sources import present_sources, put_in_force, seed_in_force, seed_sources


@dataclass(frozen=True)
class Moment:
    """The states, the sources there were, and the seed in force."""

    state: RNGState
    present: frozenset[str]
    in_force: int | None


def take(start_devices: bool = True) -> Moment:
    """The present moment. Without `start_devices`, generators of devices that nobody has used are left out."""
    present = present_sources()
    state = states_of(one for one in present if start_devices or not one.dormant())
    return Moment(state, frozenset(one.name for one in present), seed_in_force())


def put_back(moment: Moment) -> None:
    """Go back to it. Sources that have arrived since get the seed that they would have got then."""
    put_in_force(moment.in_force)
    try:
        set_rng_state(moment.state, strict=False)
    finally:
        if moment.in_force is not None:
            new = [one for one in present_sources() if one.name not in moment.present]
            seed_sources(moment.in_force, new)
