"""Everything random of a process in one plain dict for a checkpoint, and back: all of it or nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from samerun.base.errors import SeedError
from samerun.control.rng.seeding import available_sources, seed_in_force, set_seed_in_force
from samerun.control.rng.snapshot import (
    WHY_REFUSED,
    get_states_of,
    restore_snapshot,
    suggest_how_to_make_available,
    take_snapshot,
    try_set_states,
)
from samerun.control.seed_derivation import validate_seed
from samerun.control.seeds.source import DeviceCountMismatch
from samerun.control.streams.process_seed import find_rank

VERSION = 1
"""Of the dict's layout. A newer layout gets a new number, and older ones stay readable."""
KEYS = ("samerun_state", "seed", "rank", "rng")

_log = logging.getLogger("samerun")


def state_dict() -> dict[str, Any]:
    """All that decides which random numbers this process draws next, for a checkpoint.

        torch.save({"model": model.state_dict(), "samerun": samerun.state_dict()}, path)

    The state of every generator that `seed_everything` knows, of every named stream and registered generator,
    the seed in force and the rank. Plain values and CPU tensors of uint8: `torch.load(weights_only=True)`
    takes it. In a distributed run each rank has its own: save one for each.

    Not in it: `torch.Generator`, `random.Random` and `numpy.random.Generator` objects of your own (use
    `stream`), DataLoader workers, and libraries that give no state (a warning in the log "samerun" says so).
    Keys: "samerun_state" (the version of the layout), "seed", "rank", "rng" (see `get_rng_state`).
    """
    return {
        "samerun_state": VERSION,
        "seed": seed_in_force(),
        "rank": find_rank() or 0,
        "rng": get_states_of(available_sources()),
    }


def load_state_dict(state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Draw on from where `state_dict` was taken, in this process or another.

        samerun.load_state_dict(torch.load(path, weights_only=True)["samerun"])

    Load it last, right before the next step: what is built after it (a model, an iterator of a DataLoader)
    draws from it. Generators that exist keep being the same objects. A stream that `state` does not hold had
    not been drawn from, and starts from its beginning.

    strict: True raises, and changes nothing, if `state` and this process differ in the sources they have
    (libraries imported, devices), in the number of devices, or in the rank. False puts back what fits, leaves
    the rest as it is and names it in a warning in the log "samerun"; "distinct" streams of another rank start
    from their beginnings.

    Raises SeedError for that, for a dict that is none of `state_dict`, for another version, and for a state
    that is damaged. Then every stream is put back to where it stood before the call.
    """
    rng = _validate_state_dict(state)
    before = take_snapshot()
    _report_mismatches(state, rng.keys(), before.state.keys(), strict)
    if state["rank"] != (find_rank() or 0):
        rng = _drop_distinct_streams(rng)
    refused: dict[str, Exception] = {}
    try:
        set_seed_in_force(state["seed"])
        refused = try_set_states(rng)
        for name, reason in refused.items():
            if not strict and isinstance(reason, DeviceCountMismatch):
                _log.warning("load_state_dict(): %s keeps its stream: the state's is refused: %s", name, reason)
            else:
                raise SeedError(
                    f"load_state_dict(): {name} did not take its state: {reason}", _hint_for_refusal(reason)
                ) from reason
    except BaseException:
        restore_snapshot(before)
        raise


def _hint_for_refusal(reason: Exception) -> str:
    if isinstance(reason, DeviceCountMismatch):
        return "Resume with as many devices, or pass strict=False to leave their streams as they are."
    return f"{WHY_REFUSED} Nothing was changed."


def _validate_state_dict(state: Any) -> dict[str, Any]:
    """Return the states of the sources in `state`; SeedError if it is not what `state_dict` returns."""
    if not isinstance(state, Mapping):
        hint = "Pass what state_dict() returned."
        raise SeedError(f"load_state_dict(): a state is a dict, not a {type(state).__name__}.", hint)
    if "samerun_state" not in state:
        keys = ", ".join(sorted(map(repr, state))[:8]) or "none"
        hint = 'Pass the part of your checkpoint that state_dict() gave, such as checkpoint["samerun"].'
        raise SeedError(f"load_state_dict(): this dict is not from state_dict(); its keys: {keys}.", hint)
    version = state["samerun_state"]
    if version != VERSION:
        hint = "It was saved by another version of samerun: load it with that one, or a newer one."
        raise SeedError(f"load_state_dict(): the state has layout {version!r}; known here: {VERSION}.", hint)
    missing = [key for key in KEYS if key not in state]
    if missing:
        hint = "The checkpoint is damaged, or was changed after state_dict()."
        raise SeedError(f"load_state_dict(): the state lacks {', '.join(missing)}.", hint)
    if state["seed"] is not None:
        validate_seed(state["seed"], "load_state_dict")
    rank, rng = state["rank"], state["rng"]
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        raise SeedError(f"load_state_dict(): the state's rank is {rank!r}, no whole number from 0.", WHY_REFUSED)
    if not isinstance(rng, Mapping) or not all(isinstance(name, str) for name in rng):
        raise SeedError(f"load_state_dict(): the state's 'rng' is {type(rng).__name__}, no dict of names.", WHY_REFUSED)
    return dict(rng)


def _report_mismatches(
    state: Mapping[str, Any], saved_sources: Collection[str], sources_here: Collection[str], strict: bool
) -> None:
    """Raise SeedError if `strict`, else warn, where `state` and this process differ in sources or rank."""
    findings: list[tuple[str, str]] = []
    absent, new = (
        [name for name in saved_sources if name not in sources_here],
        [name for name in sources_here if name not in saved_sources],
    )
    if absent:
        findings.append(
            (f"the state holds {', '.join(absent)}, which this process lacks", suggest_how_to_make_available(absent))
        )
    if new:
        hint = "Take the state with everything imported that is imported here."
        findings.append((f"this process has {', '.join(new)}, which the state lacks", hint))
    rank = find_rank() or 0
    if state["rank"] != rank:
        hint = "Save the state of every rank, and load each on its own rank."
        findings.append((f"the state is of rank {state['rank']}, and this is rank {rank}", hint))
    for finding, hint in findings:
        if strict:
            raise SeedError(f"load_state_dict(): {finding}.", f"{hint} Or pass strict=False to put back what fits.")
        _log.warning("load_state_dict(): %s", finding)


def _drop_distinct_streams(rng: dict[str, Any]) -> dict[str, Any]:
    """Return `rng` without the streams that each rank has for itself."""
    saved = rng.get("streams")
    if not isinstance(saved, Mapping) or not isinstance(saved.get("streams"), list):
        return rng
    same = [one for one in saved["streams"] if isinstance(one, Mapping) and one.get("rank") == "same"]
    return {**rng, "streams": {**saved, "streams": same}}
