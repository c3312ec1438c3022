"""The configuration of a watched process: a small JSON file whose path is in one environment variable."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from samerun.record.pins import CLOCK_TICK_SECONDS, EXTRA

STARTED_FILE = "watched"
"""An empty file in the trace folder. It shows that a recorder was started, even if it had nothing to record."""
CONFIG_VARIABLE = "SAMERUN_WATCH"
ROLE_VARIABLE = "SAMERUN_PARENT_ROLE"


FreshMemory = Literal["zeros", "pattern"]
ListingOrder = Literal["sorted", "reversed"]


@dataclass(frozen=True)
class TensorCapture:
    """Save the tensors of one operator: number `ordinal` of a thread of a process."""

    role: str
    thread: int
    ordinal: int
    path: str


@dataclass(frozen=True)
class KeptStates:
    """Where training states are saved, and which parts are restored: see samerun.record.watching.training_states."""

    folder: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class DataReplay:
    """Save the data that a run takes in (`keep`), or replay saved data: see samerun.record.watching.replay.

    shift: how many of this run's steps precede the first one whose data count. source: None for the batches of
    DataLoaders, else an operator (file, line, name). skip: how often data pass in the first step before they count.
    streams: restore the global random generators along with the data.
    """

    folder: str
    keep: bool
    shift: int
    source: tuple[str, int, str] | None = None
    skip: int = 0
    streams: bool = False


@dataclass(frozen=True)
class HeldEnvironment:
    """Variables of the environment that are read at one line with other values than they have; None: as if not set."""

    file: str
    line: int
    values: dict[str, str | None]


@dataclass(frozen=True)
class HeldVariables:
    """Save the values of variables (`keep`), or give them those of another run: see record.watching.held_variables.

    variables: (file, line, name) of each, as the events of followed lines have them.
    """

    folder: str
    keep: bool
    variables: tuple[tuple[str, int, str], ...]


# What is written down with the numbers of a step, by these names.
GRADIENTS_DROPPED = "gradients set to zero between a backward pass and the step"
RECOMPUTED = "recomputed without random states"
RESTORED = "random states set in a backward pass were read"
BACK_IN_TRAINING = "batch norms set back to training before a call in evaluation mode"
SCHEDULER_STEPPED = "a learning-rate scheduler was stepped"
CUT_OFF = "recomputed though no input requires gradients"
RESCALED = "the scale of losses changed between a backward pass and the step"
OVERWRITTEN = "an index that is written to comes more than once, so that only one of its values stays"
COUNTED_SO_FAR = (BACK_IN_TRAINING, SCHEDULER_STEPPED)
"""Of these what was counted in earlier steps counts too: they act on every later step."""
KEPT_WHOLE, PIECES = 1024, 512
"""Of tensors with more elements than the first: the second, evenly spaced, the sums of as many pieces, and the rest."""
CALLS_KEPT = 200
"""Of calls of models without gradients all up to this number are written down, then every tenth, and so on."""


def numbers_file_name(role: str) -> str:
    """The file in the folder of a run in which a process writes down its numbers."""
    return re.sub(r"[^A-Za-z0-9_.-]+", ".", role)[:120] + ".numbers"


REGIONS_INSPECTED, REGIONS_INSPECTED_CLOSELY = "inspected", "inspected closely"
"""Settings of the switch `compile` under which compiled regions are looked into; see compiled_graphs.inspector."""
INPUT_OF = "input of "
"""Begins the name under which what goes into a model is summarised, as if an operator had made it."""
RESULT_OF = "result of "
"""The same of what a call without gradients gives."""


@dataclass(frozen=True)
class NumbersRequest:
    """Write down what a run computes as numbers, and how it is to compute: see samerun.record.watching.run_numbers.

    switches: (name, setting) of what is switched inside the process. float64: every floating operator computes in
    float64. disturbance: after each optimizer step and before the first, every parameter is moved by so many ulp.
    operator_steps: the first and last step whose operators are summarised.
    """

    switches: tuple[tuple[str, str], ...] = ()
    float64: bool = False
    disturbance: float = 0.0
    operator_steps: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class WatchConfig:
    """How one run is watched, and which parts of its environment are pinned or varied from inside."""

    folder: str
    """Where traces are written; one file for each process."""
    depth: Literal["auto", "ops", "steps"] = "auto"
    ops_limit: int = 2_000_000
    """With depth `auto`: after this many operators record only steps, beginning with the next step."""
    operator_window: tuple[int, int] | None = None
    """Record operators only in these optimizer steps (first, last), counted from 1."""
    max_steps: int | None = None
    kill_after: tuple[int, int] | None = None
    """Kill the process after a step: (step, signal number)."""
    listing_order: ListingOrder | None = None
    """None: the order of the file system; "sorted" or "reversed"."""
    fresh_memory: FreshMemory | None = None
    """None: uninitialised; "zeros" or "pattern" for new tensors and arrays."""
    clock_shift: float = 0.0
    """Seconds added to every clock."""
    clock_tick: float = CLOCK_TICK_SECONDS
    """Seconds from one reading of a pinned clock to the next."""
    varied_line: tuple[str, str, int] | None = None
    """(variation, file, line): this variation (listing, memory, clock) acts only at this line."""
    held_environment: HeldEnvironment | None = None
    unvaried_lines: tuple[tuple[str, str, int], ...] = ()
    """(variation, file, line): lines at which that variation does not act."""
    hash_rows: bool = False
    """Hash the results for each sample in passes without training: see samerun.record.watching.sample_rows."""
    split_batches: bool = False
    """Yield batches of half the size in such passes."""
    examine_batches: Literal["control", "varied"] | None = None
    """Examine models that are called without gradients: see samerun.record.watching.interceptors.batches."""
    extra_workers: bool = False
    """Give every DataLoader one more worker, or two if it has none."""
    start_method: str | None = None
    """How `multiprocessing` starts processes if the program does not say; None: Python's default."""
    copied_folder: tuple[str, str] | None = None
    """(copy, original): the working directory is a copy; its files are recorded under their original paths."""
    kept_states: KeptStates | None = None
    """Save training states beside the program's checkpoints, and restore them."""
    replay: DataReplay | None = None
    """Save the data that a run takes in, or replay those of another run."""
    pins: tuple[str, ...] = ()
    """Sources that get fixed values: see samerun.record.pins."""
    pin_variant: int = 0
    """Which of their fixed values those sources have: see samerun.record.pins.set_pin_variant."""
    trace_lines: bool = False
    """Trace the user's own lines and record the values of their variables."""
    held_variables: HeldVariables | None = None
    """With `trace_lines`: save the values of some variables, or hold them at those of another run."""
    capture: TensorCapture | None = None
    executions: int = 0
    """Execute every operator this many times in one run and compare the results; 0: once, as the program does."""
    snapshot_steps: tuple[int, ...] = ()
    """Save parameter values and loss after these steps: see samerun.record.watching.kept_tensors."""
    numbers: NumbersRequest | None = None
    """Write down what is computed as numbers, for `samerun check --neutral`."""
    user_folder: str | None = None
    receipt: bool = False
    """The run gets a receipt: digest the files that the program wrote at its end, and flush steps immediately."""

    @property
    def rewinds_draws_of_some_lines(self) -> bool:
        """True if a pin keeps the draws of some lines from changing the generator's state."""
        return any(pin.startswith(EXTRA + "@") for pin in self.pins)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> WatchConfig:
        """The configuration in a text; unknown fields are ignored. Raises ValueError or TypeError for other JSON."""
        raw: dict[str, Any] = json.loads(text)
        known = {f.name for f in fields(WatchConfig)}
        raw = {k: v for k, v in raw.items() if k in known}
        # JSON has lists where the fields are tuples.
        for name in ("operator_window", "varied_line", "copied_folder", "kill_after"):
            if raw.get(name):
                raw[name] = tuple(raw[name])
        raw["unvaried_lines"] = tuple(tuple(line) for line in raw.get("unvaried_lines", ()))
        raw["snapshot_steps"] = tuple(raw.get("snapshot_steps", ()))
        raw["pins"] = tuple(raw.get("pins", ()))
        if raw.get("capture"):
            raw["capture"] = TensorCapture(**raw["capture"])
        if raw.get("kept_states"):
            raw["kept_states"] = KeptStates(raw["kept_states"]["folder"], tuple(raw["kept_states"]["parts"]))
        if raw.get("held_variables"):
            held = raw["held_variables"]
            names = tuple((file, line, name) for file, line, name in held["variables"])
            raw["held_variables"] = HeldVariables(held["folder"], held["keep"], names)
        if raw.get("held_environment"):
            raw["held_environment"] = HeldEnvironment(**raw["held_environment"])
        if raw.get("numbers"):
            asked = raw["numbers"]
            raw["numbers"] = NumbersRequest(
                tuple((name, setting) for name, setting in asked["switches"]), asked["float64"], asked["disturbance"],
                (asked["operator_steps"][0], asked["operator_steps"][1]),
            )  # fmt: skip
        if raw.get("replay"):
            source = raw["replay"]["source"]
            raw["replay"] = DataReplay(**{**raw["replay"], "source": tuple(source) if source else None})
        return WatchConfig(**raw)


def to_original_path(file: str, copy_and_original_folder: tuple[str, str] | None) -> str:
    """The original path of a file in a copied working directory; other paths unchanged.

    `copy_and_original_folder`: see `WatchConfig.copied_folder`.
    """
    if copy_and_original_folder is None or not file.startswith(copy_and_original_folder[0]):
        return file
    return copy_and_original_folder[1] + file[len(copy_and_original_folder[0]) :]


def try_load_watch_config(environment: dict[str, str] | None = None) -> WatchConfig | None:
    """The configuration this process was started with, or None if it is not watched."""
    path = (os.environ if environment is None else environment).get(CONFIG_VARIABLE)
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return WatchConfig.from_json(file.read())
    except (OSError, ValueError, TypeError):
        return None


__all__ = [
    "BACK_IN_TRAINING",
    "CALLS_KEPT",
    "CONFIG_VARIABLE",
    "COUNTED_SO_FAR",
    "CUT_OFF",
    "GRADIENTS_DROPPED",
    "INPUT_OF",
    "KEPT_WHOLE",
    "OVERWRITTEN",
    "PIECES",
    "RECOMPUTED",
    "REGIONS_INSPECTED",
    "REGIONS_INSPECTED_CLOSELY",
    "RESCALED",
    "RESTORED",
    "RESULT_OF",
    "ROLE_VARIABLE",
    "SCHEDULER_STEPPED",
    "STARTED_FILE",
    "DataReplay",
    "HeldVariables",
    "KeptStates",
    "NumbersRequest",
    "TensorCapture",
    "WatchConfig",
    "numbers_file_name",
    "to_original_path",
    "try_load_watch_config",
]  # fmt: skip
