"""The surroundings decide: locale, timezone, a variable."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.record import format as f

VARIABLES = {"locale": "LC_ALL", "timezone": "TZ"}


def find(situation: Situation) -> list[Suspect]:
    variable = VARIABLES.get(situation.variation)
    if variable is None:
        return []
    reads = [c for c in situation.clues_of(f.ENVIRONMENT) if c.a.direct]
    if reads:
        why = f"{reads[-1].a.name} is read at line {reads[-1].a.line}"
        return [Suspect("environment-variable", reads[-1].a.file, reads[-1].a.line, (why,), 0.0, certain=True)]
    return []


CAUSE = Cause(
    "environment-variable",
    find,
    "do not depend on the machine's settings: pass the value as an argument, convert times in UTC",
    "Sorting by locale, parsing numbers and dates, and local time depend on LC_ALL and TZ.",
)
