"""Trees of digests over steps: the first row that differs is the first row that differs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_receipts import table

from samerun.base.errors import SamerunError
from samerun.record.receipt import step_table
from samerun.record.receipt.step_table import (
    VALUES,
    StepTable,
    build_step_table,
    find_first_differing_step,
)

COLUMNS = ("params", "grads")


def rows(count: int, wrong: set[int] = frozenset()) -> bytes:  # type: ignore[assignment]
    return b"".join((b"x" if n in wrong else b" ") + n.to_bytes(31, "little") for n in range(count))


@settings(max_examples=60, deadline=None)
@given(count=st.sampled_from([1, 2, 1023, 1024, 1025, 5000]), data=st.data())
def test_the_first_row_that_differs_is_found(count: int, data: st.DataObject) -> None:
    wrong = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    a, b = (
        build_step_table(COLUMNS, rows(count)),
        build_step_table(COLUMNS, rows(count, wrong)),
    )
    assert (a.root == b.root) == (not wrong)
    assert find_first_differing_step(a, b) == ((min(wrong), ("params",)) if wrong else None)
    assert [len(level) for level in a.levels] == step_table.merkle_level_byte_sizes(count)
    assert step_table.are_merkle_levels_consistent(b.levels)


@pytest.mark.parametrize("shorter", [0, 1, 1024, 4000])
def test_of_tables_of_another_length_the_shared_part_is_compared(shorter: int) -> None:
    a, b = (
        build_step_table(COLUMNS, rows(shorter)),
        build_step_table(COLUMNS, rows(4500)),
    )
    assert find_first_differing_step(a, b) is None and a.root != b.root
    if shorter:
        assert find_first_differing_step(a, build_step_table(COLUMNS, rows(4500, {shorter - 1}))) == (
            shorter - 1,
            ("params",),
        )


def test_three_levels() -> None:
    count = step_table.FAN_OUT * step_table.FAN_OUT + 5
    plain = bytes(16 * count)
    other = bytearray(plain)
    other[16 * (count - 2)] = 1
    a, b = (
        build_step_table(("params",), plain),
        build_step_table(("params",), bytes(other)),
    )
    assert len(a.levels) == 3
    assert find_first_differing_step(a, b) == (count - 2, ("params",))


def test_columns_that_only_one_has_are_not_compared() -> None:
    a, b = table(VALUES, 5), table(("params", "loss"), 5, {(3, "loss"): "other"})
    assert find_first_differing_step(a, b) == (2, ("loss",))
    assert find_first_differing_step(a, build_step_table((), b"")) is None


def test_a_level_that_was_changed_does_not_hang_together() -> None:
    levels = build_step_table(COLUMNS, rows(3000)).levels
    levels[0] = b"\1" + levels[0][1:]
    assert not step_table.are_merkle_levels_consistent(levels)


def test_the_root_tells_the_shape() -> None:
    data = bytes(64)
    assert build_step_table(("params",), data).root != build_step_table(COLUMNS, data).root


def test_a_row_by_name() -> None:
    one: StepTable = table(COLUMNS, 3, {(2, "grads"): "other"})
    assert one.digests_of_row(0)["params"] == table(COLUMNS, 1).digests_of_row(0)["params"]
    assert one.digests_of_row(1)["grads"] != table(COLUMNS, 3).digests_of_row(1)["grads"]


def test_rows_that_are_not_those_of_their_tree_are_no_answer() -> None:
    a, b = (
        build_step_table(COLUMNS, rows(3000)),
        build_step_table(COLUMNS, rows(3000, {7})),
    )
    with pytest.raises(SamerunError, match="tree"):
        find_first_differing_step(a, StepTable(b.columns, b.count, a.rows, b.levels))
