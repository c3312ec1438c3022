"""What a watched process is told: a small JSON file named by one environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

from samerun.record.pins import TICK

MARK = "watched"
"""An empty file in the folder of the traces: there was a recorder, even if it had nothing to record."""
VARIABLE = "SAMERUN_WATCH"
ROLE_VARIABLE = "SAMERUN_PARENT_ROLE"


@dataclass(frozen=True)
class Capture:
    """Keep the tensors of one operator: the `ordinal`-th of a thread of a process."""

    role: str
    thread: int
    ordinal: int
    path: str


@dataclass(frozen=True)
class Kept:
    """Where the states of a training are kept, and which parts are put back: see record.watching.training_states."""

    folder: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """Data that are kept (`keep`) or given: see record.watching.replay.

    shift: so many of this run's steps lie before the first one whose data count. place: None for the batches of
    DataLoaders, else an operator (file, line, name). skip: so often data pass by in the first step before they
    count. streams: the global random generators are set with the data.
    """

    folder: str
    keep: bool
    shift: int
    place: tuple[str, int, str] | None = None
    skip: int = 0
    streams: bool = False


@dataclass(frozen=True)
class WatchConfig:
    """How one run is watched, and which of its surroundings are held or varied from inside."""

    folder: str
    """Where traces go; one file a process."""
    depth: str = "auto"
    """auto, ops or steps."""
    ops_limit: int = 2_000_000
    """With `auto`: after so many operators only steps are recorded, from the next step on."""
    window: tuple[int, int] | None = None
    """Record operators only in these optimizer steps (first, last), counted from 1."""
    max_steps: int | None = None
    end_at: tuple[int, int] | None = None
    """End the process with a signal after a step: (step, number of the signal)."""
    listing: str | None = None
    """None: as the system gives it; "sorted" or "reversed"."""
    memory: str | None = None
    """None: as it comes; "zeros" or "pattern" for fresh tensors and arrays."""
    clock_shift: float = 0.0
    """Seconds added to every clock."""
    clock_tick: float = TICK
    """Seconds from one reading of a clock that is held still to the next."""
    only: tuple[str, str, int] | None = None
    """(what, file, line): the variation of `what` (listing, memory, clock) acts at this line alone."""
    spared: tuple[tuple[str, str, int], ...] = ()
    """(what, file, line): lines at which that variation does not act."""
    rows: bool = False
    """Hash what becomes of each sample in passes that train nothing: see record.watching.sample_rows."""
    split: bool = False
    """Hand out batches of half the size in such passes."""
    workers: bool = False
    """Give every DataLoader one worker more, two where it has none."""
    start_method: str | None = None
    """How `multiprocessing` starts processes where the program does not say; None: as Python chooses."""
    moved: tuple[str, str] | None = None
    """(folder, original): the working directory is a copy; its files are named as those of the original."""
    kept: Kept | None = None
    """Keep the states of a training beside its checkpoints, and put them back."""
    replay: Replay | None = None
    """Keep the data that a run takes in, or give a run those of another."""
    pins: tuple[str, ...] = ()
    """Sources that are given fixed values: see samerun.record.pins."""
    pin_value: int = 0
    """Which of their fixed values those sources have: see samerun.record.pins.choose_value."""
    lines: bool = False
    """Follow the user's own lines and note the values of their variables."""
    capture: Capture | None = None
    double: int = 0
    """Execute every operator so often in one run, and compare; 0: once, as the program does."""
    snapshots: tuple[int, ...] = ()
    """After these steps the values of the parameters and the loss are kept: see record.watching.kept_tensors."""
    user_folder: str | None = None
    receipt: bool = False
    """There will be a receipt: digest at the end the files that the program wrote, and write steps out at once."""

    imports: bool = False
    """Write down whether numpy and torch could as well have been imported when the process started."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> WatchConfig:
        raw: dict[str, Any] = json.loads(text)
        known = {f.name for f in fields(WatchConfig)}
        raw = {k: v for k, v in raw.items() if k in known}
        if raw.get("window"):
            raw["window"] = tuple(raw["window"])
        for name in ("only", "moved", "end_at"):
            if raw.get(name):
                raw[name] = tuple(raw[name])
        raw["spared"] = tuple(tuple(one) for one in raw.get("spared", ()))
        raw["snapshots"] = tuple(raw.get("snapshots", ()))
        raw["pins"] = tuple(raw.get("pins", ()))
        if raw.get("capture"):
            raw["capture"] = Capture(**raw["capture"])
        if raw.get("kept"):
            raw["kept"] = Kept(raw["kept"]["folder"], tuple(raw["kept"]["parts"]))
        if raw.get("replay"):
            given = raw["replay"]
            raw["replay"] = Replay(**{**given, "place": tuple(given["place"]) if given["place"] else None})
        return WatchConfig(**raw)


def as_named(file: str, moved: tuple[str, str] | None) -> str:
    """A file of a copied working directory by the name of the original; others as they are. See `WatchConfig.moved`."""
    return moved[1] + file[len(moved[0]) :] if moved is not None and file.startswith(moved[0]) else file


def config_of_environment(environment: dict[str, str] | None = None) -> WatchConfig | None:
    """The configuration this process was started with, or None when it is not watched."""
    path = (os.environ if environment is None else environment).get(VARIABLE)
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return WatchConfig.from_json(file.read())
    except (OSError, ValueError, TypeError):
        return None


__all__ = [
    "ROLE_VARIABLE", "VARIABLE", "Capture", "Kept", "Replay", "WatchConfig", "as_named", "config_of_environment",
]  # fmt: skip
