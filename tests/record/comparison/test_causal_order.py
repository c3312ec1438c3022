"""Of several processes that differ, the earliest in the order that collectives and messages give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from check_command import samerun
from repository_paths import PROGRAMS

from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces
from samerun.record.trace.writer import TraceWriter

THREE_RANKS = PROGRAMS / "sharded" / "three_ranks.py"


def write(folder: Path, role: str, script: str, changed: int | None) -> None:
    """A trace of one word for each event: an operator, `group!` for a collective, `a>b` or `a<b` for a message.

    From operator number `changed` on all values are others.
    """
    writer = TraceWriter(str(folder / f"{role.replace('/', '.')}.trace"), role)
    operators = 0
    for word in script.split():
        kind, name, who = "", f"aten.{word}", ""
        if word.endswith("!"):
            kind, name, who = "collective", "c10d.allreduce_", word
        elif ">" in word or "<" in word:
            kind, name = ("send", "c10d.send") if ">" in word else ("recv", "c10d.recv_")
            who = " to ".join(word.split(">") if ">" in word else reversed(word.split("<")))
        elif word == "start":
            writer.append(f.EVENT.pack(f.FACT, 0, 0, writer.intern_string("Process.start"), 0, 0, 0, bytes(16)))
            continue
        if kind:
            about = writer.intern_string(kind), 0, writer.intern_string(who), 1, bytes(16)
            writer.append(f.EVENT.pack(f.COLLECTIVE, 0, 0, *about))
        differs = changed is not None and operators >= changed
        writer.append(f.EVENT.pack(f.OPERATOR, 0, 0, writer.intern_string(name), 0, 0, differs, bytes(16)))
        operators += 1
    writer.close()


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Difference]:
    def compare(**roles: tuple[str, int | None]) -> Difference:
        for run in "ab":
            (tmp_path / run).mkdir()
            for role, (script, changed) in roles.items():
                write(tmp_path / run, role.replace("__", "/"), script, changed if run == "b" else None)
        found = find_first_difference(RunTraces(tmp_path / "a"), RunTraces(tmp_path / "b"))
        assert found is not None
        return found

    return compare


def test_a_difference_that_others_get_from_a_collective_is_the_first(compared) -> None:
    script = "x y all! z"
    found = compared(rank0=(script, 3), rank1=(script, 3), rank2=(script, 1))
    assert (found.role, found.also_in, found.event.name) == ("rank2", (), "aten.y")


def test_what_a_rank_gives_to_a_collective_comes_before_what_others_get(compared) -> None:
    script = "x all! z"
    found = compared(rank0=(script, 2), rank1=(script, 1), rank2=(script, 2))
    assert (found.role, found.event.name) == ("rank1", "c10d.allreduce_")


def test_a_rank_with_more_collectives_can_be_the_first(compared) -> None:
    found = compared(
        rank0=("x all! z", 2), rank1=("pair! pair! pair! x all! z", 5), rank2=("pair! pair! pair! x all! z", 3)
    )
    assert (found.role, found.also_in) == ("rank2", ())


def test_differences_travel_by_way_of_groups(compared) -> None:
    found = compared(
        rank0=("left! z", 1), rank1=("right! left! z", 2), rank2=("x right! z", 0), rank3=("x other! z", None)
    )
    assert (found.role, found.also_in) == ("rank2", ())


def test_collectives_of_another_group_order_nothing(compared) -> None:
    found = compared(rank0=("one! x", 1), rank1=("two! two! x", 2), rank2=("one! two! x", None))
    assert (found.role, found.also_in) == ("rank0", ("rank1",))


def test_the_same_group_meets_in_the_same_order(compared) -> None:
    """Rank 0 differs behind the first collective, rank 1 before the second one."""
    script = "x all! y z all! w"
    found = compared(rank0=(script, 2), rank1=(script, 3), rank2=(script, 5))
    assert (found.role, found.also_in) == ("rank0", ("rank1",))


def test_all_ranks_with_an_equally_early_difference_are_named(compared) -> None:
    script = "x all! z"
    found = compared(**{f"rank{n}": (script, 0) for n in range(12)})
    assert found.role == "rank0"
    assert found.also_in == tuple(f"rank{n}" for n in range(1, 12)), "in the order of their numbers"


def test_a_sum_over_ranks_that_differs_by_itself_is_named_on_all(compared) -> None:
    script = "x all! z"
    found = compared(rank0=(script, 2), rank1=(script, 2), rank2=(script, 2))
    assert (found.role, found.also_in, found.event.name) == ("rank0", ("rank1", "rank2"), "aten.z")


@pytest.mark.parametrize(("sender", "receiver", "first", "also"), [(0, 2, "rank1", ()), (2, 1, "rank0", ("rank1",))])
def test_a_message_comes_before_what_its_receiver_does(compared, sender, receiver, first, also) -> None:
    found = compared(rank0=("x 0<1 z", receiver), rank1=("x 1>0 y", sender))
    assert (found.role, found.also_in) == (first, also)


def test_processes_beside_the_ranks_come_after_them(compared) -> None:
    found = compared(rank0=("x all! y", 2), rank1=("x all! y", 0), rank0__loader1=("x y", 0))
    assert (found.role, found.also_in) == ("rank1", ())


@pytest.mark.parametrize(("changed", "first"), [(1, "main/1"), (0, "main")])
def test_ranks_that_the_program_started_come_before_what_it_does_then(compared, changed: int, first: str) -> None:
    assert compared(main=("x start y", changed), main__1=("x all! y", 0), main__2=("x all! y", 2)).role == first


@pytest.mark.exhaustive
def test_the_rank_that_draws_unseeded_is_named_and_not_the_one_that_comes_first_or_meets_least(tmp_path: Path) -> None:
    receipts = []
    for name in "ab":
        receipts.append(str(tmp_path / f"{name}.json"))
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", "3", str(THREE_RANKS), "unseeded"]
        done = samerun(["run", "--receipt", receipts[-1], "--trace", "ops", *launch], tmp_path, OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr
    told = samerun(["diff", "--json", "-", *receipts], tmp_path)
    first = json.loads(told.stdout)["first_difference"]
    assert (first["process"], first["step"], first["also_in"]) == ("rank2", 3, [])
    operator = first["operator"]
    assert (operator["process"], operator["also_in"], operator["what"]) == ("rank2", [], "draw")
    line = THREE_RANKS.read_text(encoding="utf-8").splitlines()[operator["line"] - 1]
    assert "generator=noise" in line
    assert "rank2" in samerun(["diff", *receipts], tmp_path).stdout
