"""The instructions a kernel is made of decide the last bits."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect


def find(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.variation != "cpu_capability" or event is None:
        return []
    why = f"{event.name} at line {event.line} gives other bits with other instructions"
    return [Suspect("cpu-capability", event.file, event.line, (why,), 0.0, certain=True)]


CAUSE = Cause(
    "cpu-capability",
    find,
    "expect other last bits on another CPU model; to have the same everywhere, use operators made for it"
    " (samerun.portable), or set ATEN_CPU_CAPABILITY=default and MKL_CBWR=COMPATIBLE on every machine",
    "Kernels for wider vectors sum in another order and compute functions in another way. Torch chooses them by"
    " the CPU it runs on, so that another machine gives other last bits, and training amplifies them.",
)
