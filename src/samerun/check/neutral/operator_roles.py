"""What the results of operators are for: a backward pass, or another rank."""

from __future__ import annotations

import re

from samerun.check.neutral.run_numbers import OperatorSummary
from samerun.record.trace import format as f

SENDING = re.compile(r"c10d\.reduce_\.")
"""The collective whose result one rank holds; the others are left with memory that means nothing."""
IN_PLACE = re.compile(r"\w+\.\w+_\.")


def mark_leading_to_gradients(operators: list[OperatorSummary]) -> list[bool]:
    """For each operator whether something of the backward pass is computed from its results."""
    leads = [operator.phase == f.BACKWARD for operator in operators]
    for at in range(len(operators) - 1, -1, -1):
        for source, _ in operators[at].sources if leads[at] else ():
            if 0 <= source < at:
                leads[source] = True
    return leads


def mark_sent_to_one_rank(operators: list[OperatorSummary]) -> list[bool]:
    """For each operator whether its results are only sent to another rank, and what is left of them is not used here:
    a gradient whose sum another rank holds (ZeRO). It is a part that corresponds to nothing on its own.
    """
    users: list[list[int]] = [[] for _ in operators]
    for at, operator in enumerate(operators):
        for source in {source for source, _ in operator.sources if 0 <= source < at}:
            users[source].append(at)
    left = [False] * len(operators)
    """What is left in place of what was sent, and whatever that is scaled to, unused."""
    sent = [False] * len(operators)
    for at in range(len(operators) - 1, -1, -1):
        name = operators[at].name
        left[at] = bool(IN_PLACE.match(name)) and len(operators[at].sources) == 1 and all(left[u] for u in users[at])
        is_sending = bool(SENDING.match(name)) and left[at]
        sent[at] = is_sending or (bool(users[at]) and all(sent[user] for user in users[at]))
    for at, operator in enumerate(operators):
        sent[at] = sent[at] or (left[at] and any(0 <= s < at and sent[s] for s, _ in operator.sources))
    return sent
