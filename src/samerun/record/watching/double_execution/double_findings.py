"""What doubling finds, as events of the trace."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from samerun.record.config import TensorCapture
from samerun.record.trace import format as f
from samerun.record.watching import kept_tensors
from samerun.record.watching.recorder import Recorder

KERNEL = "kernel"
"""Other bits from the same inputs."""
UNWRITTEN = "unwritten"
"""The result depends on memory that nothing wrote."""
INSIDE = "inside"
"""The result depends on what memory held that the operator allocated for itself."""
RACE = "race"
"""Another thread wrote to an operand while the operator was at work."""
OUTSIDE = "outside"
"""Memory was changed since it was last used, and not by an operator."""
UNSEEN = "unseen"
"""Not executed twice, and why."""

MOST_KEPT = 32
"""Of so many findings of a process the tensors are kept."""


@dataclass(frozen=True)
class DoubleFinding:
    """One finding. `made` and `written`: numbers of places, 0 for none.

    `how`: what made the memory, or gave it to others. `runs`: executions; `different`: how many gave other bits
    than the program's own. `thread`: who else was there. `unsure`: a wait of a kind that is not seen would explain
    it. `kept`: begin of the names of two files.
    """

    what: str
    made: int = 0
    written: int = 0
    how: str = ""
    runs: int = 0
    different: int = 0
    thread: str = ""
    unsure: bool = False
    times: int = 1
    kept: str = ""


class DoubleFindingLog:
    """The findings of one process: the first of each kind and place, then how often it came again."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._times: dict[tuple[Any, ...], int] = {}
        self._kept = 0

    def clear(self) -> None:
        self._times.clear()
        self._kept = 0

    def count_and_emit_at_powers_of_two(
        self,
        finding: DoubleFinding,
        operator: str,
        location_id: int,
        phase: int,
        program_and_other_result: Sequence[Any] = (),
    ) -> None:
        """Count the finding; write an event when it has come 1, 2, 4, 8 ... times."""
        key = (finding.what, operator, location_id, finding.made, finding.written, finding.how, finding.unsure)
        times = self._times[key] = self._times.get(key, 0) + 1
        if times & (times - 1):
            return
        writer = self.recorder.writer or self.recorder.open_writer()
        if writer is None:
            return
        text = asdict(finding)
        text["times"] = max(times, finding.times)
        if program_and_other_result and times == 1 and self._kept < MOST_KEPT:
            self._kept += 1
            kept = f"{writer.path}.{self._kept}"
            text["kept"] = os.path.basename(kept)
            for name, tensor in zip(("a", "b"), program_and_other_result, strict=True):
                capture = TensorCapture(self.recorder.process_role_path(), 0, 0, f"{kept}.{name}")
                kept_tensors.write_tensors_if_role_matches(capture, self.recorder, [tensor], operator, location_id)
        said = json.dumps({name: value for name, value in text.items() if value}, sort_keys=True)
        self.recorder.emit(
            f.DOUBLE, name=operator, location_id=location_id, aux=writer.intern_string(said), phase=phase
        )
