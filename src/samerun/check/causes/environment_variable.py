"""The surroundings decide: locale, timezone, a variable, a folder."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f

SURROUNDINGS = ("locale", "timezone", "allocator", "environment_noise", "working_directory", "home", "umask")


def find(situation: Situation) -> list[Suspect]:
    own = situation.variation.startswith("env:")
    if situation.variation not in SURROUNDINGS and not own:
        return []
    reads = [c for c in situation.clues_of(f.ENVIRONMENT) if c.a.direct]
    if own:
        reads = [c for c in reads if c.a.name == situation.variation[4:].split("=")[0]]
    if reads:
        why = f"{reads[-1].a.name} is read at line {reads[-1].a.line}"
        return [Suspect("environment-variable", reads[-1].a.file, reads[-1].a.line, (why,), 0.0, certain=True)]
    return []


CAUSE = Cause(
    "environment-variable",
    find,
    "do not depend on the machine's settings: pass the value as an argument, convert times in UTC",
    "Sorting by locale, parsing numbers and dates, and local time depend on LC_ALL and TZ; names of users and"
    " folders, and the permissions of new files, change with the machine as well.",
)
