"""The named streams of `samerun.stream`, all in one: their seed, and the position of each.

A stream that a state does not hold had not been drawn from, and starts from its beginning.
"""

from __future__ import annotations

from typing import Any

from samerun.control import process_seed
from samerun.control.generators import Kind, kind_named
from samerun.control.named_stream import Key, stream_with, streams
from samerun.control.place import known_rank
from samerun.control.seeds.source import Source, State


def _seed(seed: int) -> None:
    process_seed.put(seed)
    for one in streams.values():
        one.restart()


def _get_state() -> State:
    seed, place = process_seed.seed(), process_seed.origin().here()
    return {"seed": seed, "place": place, "streams": [_record(key) for key in streams]}


def _record(key: Key) -> dict[str, Any]:
    one, (name, rank, seed) = streams[key], key
    parts = dict(one.waiting)
    parts.update({kind.name: kind.get_state(generator) for kind, generator in one.generators.values()})
    drawn_as = None if one.drawn_as is None or not parts else one.drawn_as[0]
    return {"name": name, "rank": rank, "seed": seed, "drawn_as": drawn_as, "parts": parts}


def _set_state(state: State) -> None:
    seed, place = state["seed"], state["place"]
    if not (seed is None or isinstance(seed, int)) or not isinstance(place, str):
        raise TypeError("its seed is no whole number, or its place no string")
    saved = [_read(record) for record in state["streams"]]  # all of it, before anything changes
    process_seed.put(seed, place)
    for key in streams.keys() - {key for key, _, _ in saved}:
        streams[key].put_back({})
    for key, parts, rank in saved:
        stream_with(key).put_back(parts, rank)


def _read(record: Any) -> tuple[Key, dict[str, tuple[Kind, Any]], int | None]:
    name, rank, seed, drawn_as = (record[field] for field in ("name", "rank", "seed", "drawn_as"))
    numbers = all(one is None or isinstance(one, int) for one in (seed, drawn_as))
    if not isinstance(name, str) or rank not in ("same", "distinct") or not numbers:
        raise TypeError(f"it holds a stream that is none: {name!r}, rank {rank!r}, seed {seed!r}")
    if rank == "distinct" and drawn_as is not None:
        here = known_rank()
        if here not in (None, drawn_as):
            raise ValueError(f"its stream {name!r} is of rank {drawn_as}, and this is rank {here}")
    parts = {}
    for part, value in dict(record["parts"]).items():
        kind = kind_named(part)
        if kind is None:
            raise ValueError(f"its stream {name!r} has a generator of an unknown kind: {part!r}")
        parts[part] = (kind, value)
    return (name, rank, seed), parts, drawn_as


SOURCE = Source("streams", "", lambda: True, _seed, _get_state, _set_state)
