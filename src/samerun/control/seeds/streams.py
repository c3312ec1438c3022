"""The named streams of `samerun.stream`, all as one source: their seed, and the position of each.

A stream that a state does not contain had not been drawn from, and starts from its beginning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from samerun.control.random_source import RandomSource, State
from samerun.control.streams import process_seed
from samerun.control.streams.generator_kinds import GeneratorKind, find_generator_kind
from samerun.control.streams.process_seed import find_acting_rank
from samerun.control.streams.stream import StreamKey, get_or_make_stream, process_streams


def _set_seed_and_restart_streams(seed: int) -> None:
    process_seed.set_streams_seed(seed)
    for stream in process_streams.values():
        stream.restart_generators()


def _get_streams_state() -> State:
    seed, path = process_seed.current_streams_seed(), process_seed.current_origin().current_path()
    return {"seed": seed, "place": path, "streams": [_get_stream_state(key) for key in process_streams]}


def _get_stream_state(key: StreamKey) -> dict[str, Any]:
    stream, (name, rank, seed) = process_streams[key], key
    parts = dict(stream.pending_states)
    parts.update({kind.name: kind.get_state(generator) for kind, generator in stream.generators.values()})
    drawn_as = None if stream.drawn_as is None or not parts else stream.drawn_as[0]
    return {"name": name, "rank": rank, "seed": seed, "drawn_as": drawn_as, "parts": parts}


def _set_streams_state(state: State) -> None:
    seed, path = state["seed"], state["place"]
    if not (seed is None or isinstance(seed, int)) or not isinstance(path, str):
        raise TypeError("its seed is not a whole number, or its place is not a string")
    # Every stream's state is validated before the first stream changes: a damaged one must leave all as they were.
    saved = [_parse_stream_state(stream_state) for stream_state in state["streams"]]
    process_seed.set_streams_seed(seed, path)
    for key in process_streams.keys() - {one.key for one in saved}:
        process_streams[key].restore_states_and_reseed_others({})
    for one in saved:
        get_or_make_stream(one.key).restore_states_and_reseed_others(one.states, one.drawn_as)


class SavedStream(NamedTuple):
    """A stream in a state. states: by name of kind. drawn_as: the rank that its generators were drawn as."""

    key: StreamKey
    states: dict[str, tuple[GeneratorKind, Any]]
    drawn_as: int | None


def _parse_stream_state(stream_state: Any) -> SavedStream:
    """Validate what `_get_stream_state` returned. Raises TypeError or ValueError."""
    name, rank, seed, drawn_as = (stream_state[field] for field in ("name", "rank", "seed", "drawn_as"))
    are_numbers = all(number is None or isinstance(number, int) for number in (seed, drawn_as))
    if not isinstance(name, str) or rank not in ("same", "distinct") or not are_numbers:
        raise TypeError(f"it holds an invalid stream: {name!r}, rank {rank!r}, seed {seed!r}")
    if rank == "distinct" and drawn_as is not None:
        here = find_acting_rank()
        if here not in (None, drawn_as):
            raise ValueError(f"its stream {name!r} is of rank {drawn_as}, and this is rank {here}")
    parts = {}
    for part, value in dict(stream_state["parts"]).items():
        kind = find_generator_kind(part)
        if kind is None:
            raise ValueError(f"its stream {name!r} has a generator of an unknown kind: {part!r}")
        parts[part] = (kind, value)
    return SavedStream((name, rank, seed), parts, drawn_as)


SOURCE = RandomSource(
    "streams", "", lambda: True, _set_seed_and_restart_streams, _get_streams_state, _set_streams_state
)
