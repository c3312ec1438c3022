"""Digests of what variables of a program hold."""

from __future__ import annotations

import datetime
import decimal
import fractions
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from samerun.record.digests.variable_digests import digest_variable

PROGRAM = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from samerun.record.digests.variable_digests import digest_variable

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 1))
fully_shard(model)
with CommDebugMode() as watched:
    before = digest_variable(model)
    with torch.no_grad():
        model[0].weight.to_local().add_(1)
    assert digest_variable(model) != before
assert watched.get_total_counts() == 0, watched.get_comm_counts()
"""


@pytest.mark.slow
def test_a_sharded_model_is_digested_without_the_other_ranks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


class Evaluator(threading.Thread):
    def __init__(self, limit: int) -> None:
        super().__init__(daemon=True)
        self.limit = limit

    def run(self) -> None:
        pass


def test_what_threads_and_loggers_hold_of_the_process_is_no_value() -> None:
    one, other, third = Evaluator(3), Evaluator(3), Evaluator(4)
    for number, each in enumerate((one, other, third)):
        each.start()
        each.join()
        each.name = "evaluator"
        each._native_id = each._ident = number  # type: ignore[attr-defined]
    assert digest_variable(one) == digest_variable(other)
    assert digest_variable(one) != digest_variable(third)
    log = logging.getLogger("samerun.tests.some_logger")
    before = digest_variable([log])
    logging.getLogger("samerun.tests.another_logger").setLevel(10)
    assert digest_variable([log]) == before


DAY = datetime.datetime(2024, 1, 2)


@pytest.mark.parametrize(("value", "same", "other"), [
    (DAY, datetime.datetime(2024, 1, 2), DAY + datetime.timedelta(1)),
    (datetime.timedelta(1), datetime.timedelta(hours=24), datetime.timedelta(2)),
    (decimal.Decimal("0.1"), decimal.Decimal("0.1"), decimal.Decimal("0.10")),
    ([fractions.Fraction(1, 3)], [fractions.Fraction(2, 6)], [fractions.Fraction(2, 3)]),
])  # fmt: skip
def test_dates_and_exact_numbers_are_values(value: Any, same: Any, other: Any) -> None:
    assert digest_variable(value) == digest_variable(same) != digest_variable(other)


class Node:
    __slots__ = ("__hidden", "neighbors", "number")

    def __init__(self, number: int) -> None:
        self.number, self.__hidden = number, -number
        self.neighbors: set[Node] = set()


class NamedNode(Node):
    name = "no slot"


def make_ring(count: int) -> list[Node]:
    nodes = [Node(number) for number in range(count)]
    for at, node in enumerate(nodes):
        node.neighbors = {nodes[at - 1], nodes[(at + 1) % count]}
    return nodes


def test_slots_of_the_users_classes_are_values() -> None:
    assert digest_variable(make_ring(5)) == digest_variable(make_ring(5))
    assert digest_variable(make_ring(5)) != digest_variable(make_ring(5)[::-1])
    assert digest_variable(NamedNode(1)) != digest_variable(NamedNode(2))
    unset = Node.__new__(Node)
    assert digest_variable(unset) == digest_variable(Node.__new__(Node)) != digest_variable(Node(0))


def test_slots_of_library_classes_do_not_count() -> None:
    used, unused = Path("a"), Path("a")
    hash(used)  # kept in a slot, and another one in every run
    assert digest_variable(used) == digest_variable(unused)
