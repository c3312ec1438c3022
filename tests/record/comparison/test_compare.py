"""Comparing two runs: which event is the first that differs, and how."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from samerun.record.comparison.compare import Difference, find_differing_host_events, find_first_difference
from samerun.record.trace import format as f
from samerun.record.trace import reader
from samerun.record.trace.run import RunTraces
from samerun.record.trace.writer import TraceWriter


@dataclass(frozen=True)
class Row:
    """One event to be written."""

    kind: int = f.OPERATOR
    name: str = "aten.add"
    line: int = 1
    inputs: int = 0
    outputs: int = 0
    aux: int = 0
    thread: int = 0
    module: str = ""


numbers = itertools.count()


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Difference | None]:
    def compare(a: Sequence[Row] | dict, b: Sequence[Row] | dict) -> Difference | None:  # type: ignore[type-arg]
        runs = []
        for given in (a, b):
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            for role, rows in (given if isinstance(given, dict) else {"main": given}).items():
                write(folder, role, rows)
            runs.append(RunTraces(folder))
        return find_first_difference(*runs)

    return compare


def write(folder: Path, role: str, rows: Sequence[Row]) -> None:
    writer = TraceWriter(str(folder / f"{role.replace('/', '.')}.trace"), role)
    for row in rows:
        place = writer.intern_location("train.py", row.line, row.module) if row.line else 0
        outputs = row.outputs.to_bytes(16, "little")
        writer.append(
            f.EVENT.pack(row.kind, 0, row.thread, writer.intern_string(row.name), place, row.aux, row.inputs, outputs)
        )
    writer.close()


def operators(count: int, first: int = 0) -> list[Row]:
    return [Row(name=f"aten.op{i % 7}", line=1 + i % 11, inputs=i, outputs=i + 1) for i in range(first, first + count)]


def changed(rows: list[Row], at: int, **values: object) -> list[Row]:
    from dataclasses import replace

    return [replace(row, **values) if i == at else row for i, row in enumerate(rows)]  # type: ignore[arg-type]


def test_equal_runs(compared) -> None:
    assert compared(operators(50), operators(50)) is None
    assert compared([], []) is None


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"outputs": 99}, "outputs"),
        ({"outputs": 1 << 70}, "outputs"),
        ({"inputs": 99}, "inputs"),
        ({"aux": 9}, "scalars"),
    ],
)
def test_what_differs(compared, values: dict[str, int], what: str) -> None:
    found = compared(operators(50), changed(operators(50), 20, **values))
    assert (found.what, found.ordinal, found.step) == (what, 21, 1)
    assert found.a.index == found.b.index == 20
    assert (found.a.file, found.a.line, found.a.name) == ("train.py", 1 + 20 % 11, "aten.op6")


def test_the_first_of_several_differences_counts(compared) -> None:
    other = changed(changed(operators(50), 30, outputs=7), 12, inputs=7)
    assert compared(operators(50), other).a.index == 12


def test_steps_are_counted(compared) -> None:
    rows = [*operators(3), Row(f.STEP), *operators(3), Row(f.STEP), *operators(3)]
    assert compared(rows, changed(rows, 9, outputs=99)).step == 3


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (Row(f.DRAW, "torch", outputs=1), "draw"),
        (Row(f.LEAF, "params", outputs=1), "leaf"),
        (Row(f.FINAL, "Net", outputs=1), "final"),
    ],
)
def test_values_that_are_no_operators(compared, row: Row, what: str) -> None:
    one = [*operators(9), row, *operators(9)]
    assert compared(one, one) is None
    assert compared(one, changed(one, 9, outputs=2)).what == what


@pytest.mark.parametrize(
    "row",
    [
        Row(f.DRAW, "python", outputs=1), Row(f.LEAF, "batch", outputs=1), Row(f.LEAF, "rng.numpy", outputs=1),
        Row(f.CLOCK, "time.time", outputs=1), Row(f.ENTROPY, "os.urandom", outputs=1), Row(f.SEED, "torch", inputs=1),
        Row(f.LISTING, "os.listdir", outputs=1), Row(f.ENVIRONMENT, "HOME", outputs=1),
    ],
    ids=lambda row: row.name,
)  # fmt: skip
def test_host_events_may_differ(compared, row: Row) -> None:
    one = [*operators(9), row, *operators(9)]
    assert compared(one, changed(one, 9, outputs=2, inputs=3)) is None
    assert compared(one, operators(9) + operators(9)) is None
    assert compared(operators(9) + operators(9), [row, row, *one, row]) is None


@pytest.mark.parametrize("extra_in", ["a", "b"])
def test_a_run_that_goes_on_longer(compared, extra_in: str) -> None:
    short, long = operators(20), [*operators(20), *(Row(f.LEAF, "params", outputs=i) for i in range(3))]
    found = compared(long, short) if extra_in == "a" else compared(short, long)
    assert (found.what, found.extra_in, len(found.extra)) == ("operator", extra_in, 3)
    assert (found.b if extra_in == "a" else found.a) is None


@pytest.mark.parametrize("extra_in", ["a", "b"])
@pytest.mark.parametrize("count", [1, 5])
def test_inserted_results_are_counted(compared, extra_in: str, count: int) -> None:
    more = [Row(f.LEAF, "params", line=500 + i, outputs=i) for i in range(count)]
    plain = operators(40)
    longer = plain[:20] + more + plain[20:]
    found = compared(longer, plain) if extra_in == "a" else compared(plain, longer)
    assert (found.what, found.extra_in, len(found.extra)) == ("operator", extra_in, count)
    assert [event.line for event in found.extra] == [row.line for row in more]


def test_another_operator(compared) -> None:
    found = compared(operators(20), operators(10) + [Row(name="aten.other", line=900 + i) for i in range(10)])
    assert found.what == "operator"
    assert (found.a.name, found.b.name) == ("aten.op3", "aten.other")


def test_inserted_operators_without_consequences_are_passed_over(compared) -> None:
    plain = operators(40)
    more = [Row(name="aten.log", line=500, inputs=3, outputs=3)] * 3
    assert compared(plain, plain[:20] + more + plain[20:]) is None
    found = compared(plain, plain[:20] + more + changed(plain, 30, outputs=0)[20:])
    assert (found.what, found.a.index, found.b.index) == ("outputs", 30, 33)


def test_numbering_of_strings_and_places_does_not_matter(compared) -> None:
    rows = operators(30)
    others = [Row(f.CLOCK, f"clock{i}", line=1000 - i, module=f"m{i}") for i in range(20)]
    assert compared(rows, [*others, *reversed(operators(0)), *rows]) is None
    assert compared([*others, *rows], rows) is None
    assert compared([*others, *rows], changed(rows, 3, name="aten.op9")).what == "operator"


def test_the_module_path_counts(compared) -> None:
    rows = operators(10)
    assert compared(rows, changed(rows, 4, module="layers.0")) is not None


def thread(number: int, role: str) -> Row:
    return Row(f.THREAD, role, line=0, inputs=number, thread=number)


def test_threads_are_found_by_role(compared) -> None:
    def rows(left: int, right: int) -> list[Row]:
        ops = {number: [Row(thread=n, line=20 + number, inputs=i, outputs=i) for i in range(5)]
               for number, n in ((0, left), (1, right))}  # fmt: skip
        return [thread(left, "main/left#1"), thread(right, "main/right#1"), *ops[0], *ops[1]]

    one, other = rows(1, 2), rows(2, 1)
    assert compared(one, other) is None
    mixed = [*other[:2], *itertools.chain(*zip(other[2:7], other[7:], strict=True))]
    assert compared(one, mixed) is None
    found = compared(one, changed(other, 8, outputs=77))
    assert (found.what, found.thread) == ("outputs", "main/right#1")


def test_pool_threads_are_a_set(compared) -> None:
    def rows(order: Sequence[int]) -> list[Row]:
        return [thread(1, "main/pool#1"), thread(2, "main/pool#2"),
                *(Row(thread=1 + at % 2, inputs=i, outputs=i) for at, i in enumerate(order))]  # fmt: skip

    assert compared(rows([1, 2, 3, 4]), rows([4, 2, 1, 3])) is None
    found = compared(rows([1, 2, 3, 4]), rows([4, 2, 9, 3]))
    assert (found.what, found.thread, found.a.inputs, found.b.inputs) == ("inputs", "main/pool", 1, 9)
    assert compared(rows([1, 2, 3]), rows([1, 2, 3, 4])).what == "operator"


def test_a_process_that_only_one_run_has(compared) -> None:
    one = {"main": operators(9), "main/loader1.worker0": operators(3)}
    found = compared(one, {"main": operators(9)})
    assert (found.what, found.role, found.extra_in) == ("process", "main/loader1.worker0", "a")
    assert compared({"main": operators(9)}, one).extra_in == "b"
    silent = {"main": operators(9), "main/sub": [Row(f.SEED, "python")]}
    assert compared(silent, {"main": operators(9)}) is None


def test_a_difference_of_values_goes_before_a_missing_process(compared) -> None:
    one = {"main": operators(9), "main/a": operators(3)}
    other = {"main": operators(9), "main/b": operators(3)}
    assert compared(one, other).role == "main/a"
    one["main/c"], other["main/c"] = operators(3), changed(operators(3), 1, outputs=8)
    assert compared(one, other).role == "main/c"


def test_the_main_process_goes_first(compared) -> None:
    one = {"main": operators(9), "another": operators(9)}
    other = {"main": changed(operators(9), 8, outputs=0), "another": changed(operators(9), 0, outputs=0)}
    assert compared(one, other).role == "main"


@pytest.mark.parametrize("chunk", [1, 7, 256, 300])
@pytest.mark.parametrize("at", [0, 255, 256, 511, 599])
def test_chunks_do_not_matter(compared, monkeypatch: pytest.MonkeyPatch, chunk: int, at: int) -> None:
    monkeypatch.setattr(reader, "CHUNK_EVENTS", chunk)
    rows = operators(600)
    host = [Row(f.CLOCK, "time.time")] * 300
    assert compared(rows, host + rows) is None
    found = compared(rows, host + changed(rows, at, outputs=0))
    assert (found.what, found.ordinal, found.a.index, found.b.index) == ("outputs", at + 1, at, at + 300)


@pytest.mark.parametrize(("at", "seen"), [(5, True), (15, False)])
def test_a_file_that_only_the_second_run_reads(tmp_path: Path, at: int, seen: bool) -> None:
    """It may explain a difference that comes after it, and none that came before."""
    rows = operators(20)
    read = [*rows[:at], Row(f.FILE, "open", line=700), *rows[at:]]
    for name, events in (("a", rows), ("b", read)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "main", events)
    found = find_differing_host_events(RunTraces(tmp_path / "a"), RunTraces(tmp_path / "b"), "main", 10, 10)
    assert [clue.a.line for clue in found] == ([700] if seen else [])


@pytest.mark.parametrize(("seeds", "seen"), [((2, 1), False), ((2, 3), True)])
def test_started_programs_that_only_come_in_another_order_are_no_clue(
    seeds: tuple[int, int], seen: bool, tmp_path: Path
) -> None:
    for name, outputs in (("a", (1, 2)), ("b", seeds)):
        (tmp_path / name).mkdir()
        for role, seed in zip(("main/sub", "main/sub~1"), outputs, strict=True):
            write(tmp_path / name, role, [Row(kind=f.SEED, name="python", line=7, outputs=seed)])
        write(tmp_path / name, "main", operators(3))
    found = find_differing_host_events(RunTraces(tmp_path / "a"), RunTraces(tmp_path / "b"), "main", 3, 3)
    assert [clue.role for clue in found] == (["main/sub", "main/sub~1"] if seen else [])


def test_of_ranks_the_one_that_differs_after_the_fewest_collectives_is_named(compared) -> None:
    sent = [Row(name="c10d.send", line=3), Row(name="c10d.recv_", line=3)]
    first = {"rank0": [*operators(3), *sent, *operators(3, 10)], "rank1": [*operators(9), *sent]}
    second = {"rank0": changed(first["rank0"], 6, outputs=99), "rank1": changed(first["rank1"], 8, outputs=99)}
    difference = compared(first, second)
    assert (difference.role, difference.a.name) == ("rank1", "aten.op1")
    second["rank1"] = first["rank1"]
    assert compared(first, second).role == "rank0"
    both = {"rank0": changed(first["rank0"], 1, outputs=99), "rank1": changed(first["rank1"], 0, outputs=99)}
    assert compared(first, both).role == "rank0", "neither comes after a collective"
