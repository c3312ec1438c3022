"""`--ignore KIND[:FILE[:LINE]]`: findings that are not to be counted."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from samerun.base.errors import SamerunError
from samerun.base.records import FoundCause
from samerun.check.causes.table import CAUSES


@dataclass(frozen=True)
class IgnoreRule:
    """`file` "": anywhere; `line` 0: at any line of the file. `text`: what the user wrote."""

    kind: str
    file: str
    line: int
    text: str

    def matches(self, cause: FoundCause) -> bool:
        """Whether a finding is not to be counted. A finding without a line is only covered by its kind alone."""
        if cause.kind != self.kind or (self.line and cause.line != self.line):
            return False
        return not self.file or (bool(cause.file) and os.path.realpath(cause.file) == os.path.realpath(self.file))


def matches_any_rule(rules: Sequence[IgnoreRule], cause: FoundCause) -> bool:
    return any(rule.matches(cause) for rule in rules)


def unmatched_rules(rules: Sequence[IgnoreRule], causes: Sequence[FoundCause]) -> list[IgnoreRule]:
    """The rules that match none of these causes."""
    return [rule for rule in rules if not any(rule.matches(cause) for cause in causes)]


def parse_ignore_rule(text: str) -> IgnoreRule:
    """Raises SamerunError for an unknown kind, an empty file name, or a line that is not a number from 1."""
    kind, *rest = text.split(":", 1)
    kinds = [cause.kind for cause in CAUSES]
    if kind not in kinds:
        near = difflib.get_close_matches(kind, kinds, 1, 0.5)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise SamerunError(
            f"--ignore {text}: there is no kind of cause {kind!r}.", hint=f"{hint}There are: {', '.join(kinds)}."
        )
    if not rest:
        return IgnoreRule(kind, "", 0, text)
    file, colon, last = rest[0].rpartition(":")
    if not colon:
        file, last = rest[0], ""
    if not file or (colon and not (last.isdecimal() and int(last) > 0)):
        wrong = "no file is named behind the kind" if not file else f"{last!r} is no line: lines count from 1"
        raise SamerunError(f"--ignore {text}: {wrong}.", hint="Write --ignore KIND, KIND:FILE or KIND:FILE:LINE.")
    return IgnoreRule(kind, file, int(last) if last else 0, text)
