"""What differs first between two receipts, what around them, and whether ranks agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile_traces import operators, write
from sample_receipts import FACTS, made, section

from samerun.record.receipt.diff import describe_first_difference, describe_rank_drift, diff_runs, wrap_new_run
from samerun.record.receipt.environment_diff import RULES, EnvironmentDifference, find_impact_rule, find_tested_tier


def compared(a: Any, b: Any, **options: Any) -> dict[str, Any]:
    return diff_runs(wrap_new_run("A", a), wrap_new_run("B", b), **options)


def entry(name: str, value: str = "0") -> dict[str, Any]:
    return {"name": name, "digest": value * 32}


def mark(step: int, value: str) -> dict[str, Any]:
    return {**entry("m", value), "step": step}


def output(path: str, value: str) -> dict[str, Any]:
    return {"path": path, "bytes": 1, "digest": value * 32}


@pytest.mark.parametrize(
    "a, b, what, step",
    [
        (section(), section(other={(3, "grads"): "x", (4, "params"): "y"}), "steps", 3),
        (section(), section(steps=7), "count", 6),
        (section(marks=[mark(2, "0")]), section(marks=[mark(2, "1")]), "mark", 2),
        (section(marks=[mark(2, "0")]), section(), "mark", 2),
        (section(marks=[mark(2, "0")]), section(marks=[mark(2, "1")], other={(2, "loss"): "x"}), "steps", 2),
        (section(marks=[mark(2, "0")]), section(marks=[mark(2, "1")], other={(3, "loss"): "x"}), "mark", 2),
        (section(saved=[entry("x.pt")]), section(saved=[entry("x.pt", "1")]), "saved", 0),
        (section(outputs=[output("x", "0")]), section(outputs=[output("x", "1")]), "output", 0),
    ],
)
def test_the_first_difference(a: Any, b: Any, what: str, step: int) -> None:
    record = compared(made(a), made(b))
    assert record["verdict"] == "different"
    assert (record["first_difference"]["what"], record["first_difference"]["step"]) == (what, step)
    assert describe_first_difference(record)
    assert compared(made(a), made(a))["verdict"] == "same"


def test_generators_alone_are_evidence_and_no_difference() -> None:
    a, b = section(), section(other={(1, "rng"): "x"})
    assert compared(made(a), made(b))["verdict"] == "same"
    record = compared(made(a), made(section(other={(1, "rng"): "x", (2, "loss"): "y"})))
    assert record["generators_differ_earlier"] == {"process": "main", "step": 1, "what": ["rng"]}


def test_outputs_can_be_left_out() -> None:
    a, b = (made(section(outputs=[output("train.log", value)])) for value in "01")
    assert compared(a, b)["verdict"] == "different"
    assert compared(a, b, ignored_output_patterns=["*.log"])["verdict"] == "same"


def test_receipts_without_results_are_compared_by_operator(tmp_path: Path) -> None:
    none = made(section(steps=0))
    assert "--trace ops" in compared(none, none)["notes"][0]
    assert not compared(made(section()), made(section()))["notes"]
    other = operators(4)
    other["out0"] += 100
    for name, events in (("a", operators(4)), ("b", other), ("c", operators(0))):
        write(tmp_path / name / "main.trace", events)
    a, b, c = (replace(wrap_new_run(name.upper(), none), traces=tmp_path / name) for name in "abc")
    for one, two, what in ((a, b, "outputs"), (a, c, "operator"), (c, b, "operator")):
        record = diff_runs(one, two)
        assert (record["verdict"], record["first_difference"]["what"]) == ("different", what)
    assert diff_runs(a, a)["verdict"] == "same" and not diff_runs(a, a)["notes"]


def test_another_end_is_a_difference() -> None:
    assert compared(made(), made(ending={"exit_code": 3, "signal": None}))["first_difference"]["what"] == "ended"


def test_a_record_that_is_cut_off_is_neither_same_nor_different() -> None:
    cut = made(
        section(steps=3), read_errors=["main: its trace ends before its end"], ending={"exit_code": None, "signal": 9}
    )
    record = compared(made(), cut)
    assert record["verdict"] == "trouble" and record["first_difference"] is None and "not whole" in record["notes"][0]
    cut = made(section(steps=3, other={(2, "loss"): "x"}), read_errors=["cut"])
    assert compared(made(), cut)["first_difference"]["step"] == 2


def test_a_process_that_only_one_has() -> None:
    record = compared(made(section("rank0"), section("rank1")), made(section("rank0")))
    assert record["first_difference"]["process"] == "rank1" and record["first_difference"]["names"] == ["only in A"]


CHANGES: list[tuple[str, Any]] = [
    ("knobs.threads", {"knobs": {"threads": 2, "mkl_cbwr": None}}),
    ("knobs.mkl_cbwr", {"knobs": {"threads": 1, "mkl_cbwr": "AVX2"}}),
    ("packages.torch", {"packages": {"torch": "2.11.0", "numpy": "2.4.6"}}),
    ("machine.processor", {"machine": {**FACTS["machine"], "processor": "another"}}),
    ("variables.OMP_NUM_THREADS", {"variables": {}}),
    ("seed", {"seed": 8}),
    ("streams", {"streams": ["x"]}),
]


@pytest.mark.parametrize("path, facts", CHANGES, ids=[path for path, _ in CHANGES])
def test_what_differs_around_them_is_named_with_what_it_can_change(path: str, facts: Any) -> None:
    record = compared(made(), made(section(other={(1, "loss"): "x"}), facts=facts))
    assert [one["path"] for one in record["surroundings"]] == [path]
    assert record["surroundings"][0]["changes"] != "not known"


def test_the_likeliest_reason_stands_first() -> None:
    facts = {"packages": {"torch": "2.11.0", "numpy": "1"}, "knobs": {"threads": 2, "mkl_cbwr": None},
             "machine": {**FACTS["machine"], "cores": 9}}  # fmt: skip
    paths = [one["path"] for one in compared(made(), made(facts=facts))["surroundings"]]
    assert paths == ["packages.torch", "knobs.threads", "packages.numpy", "machine.cores"]


def test_another_commit_is_hardly_the_reason_where_the_sources_that_ran_are_the_same() -> None:
    left, right = ({"commit": name * 40, "diff": name, "untracked": {"x.py": name}} for name in "ab")
    threads = {"knobs": {"threads": 2, "mkl_cbwr": None}}
    for sources, first in (({}, "knobs.threads"), ({"sources": {"train.py": "1" * 64}}, "code.commit")):
        record = compared(made(code=left), made(facts={**threads, **sources}, code=right))["surroundings"]
        assert record[0]["path"] == first
        assert {"code.commit", "code.diff", "code.untracked"} < {one["path"] for one in record}
        assert ("little" in record[1]["changes"]) == (first == "knobs.threads")


def test_every_rule_can_be_reached() -> None:
    for rule in RULES:
        assert find_impact_rule(rule.pattern.replace("*", "x")) == rule, rule.pattern


@pytest.mark.parametrize(
    "paths, tier",
    [([], "T0"), (["variables.TZ"], "T1"), (["knobs.threads", "variables.OMP_NUM_THREADS"], "T2"),
     (["machine.torch.threads"], "T2"), (["machine.processor", "knobs.threads"], "T3"), (["packages.torch"], "T3")],
)  # fmt: skip
def test_the_tier_is_what_was_tested(paths: list[str], tier: str) -> None:
    assert find_tested_tier([EnvironmentDifference(path, 1, 2, 0, "") for path in paths]) == tier


def test_of_ranks_that_differ_after_one_step_those_come_first_whose_loss_differs() -> None:
    exchanged = {(3, name): "x" for name in ("params", "grads", "optimizer")}
    ranks = dict.fromkeys(("rank0", "rank1", "rank3"), exchanged) | {"rank2": {**exchanged, (3, "loss"): "x"}}
    a = made(*(section(role) for role in ranks))
    first = compared(a, made(*(section(role, other=other) for role, other in ranks.items())))["first_difference"]
    assert (first["process"], first["step"], first["also_in"]) == ("rank2", 3, [])
    ranks["rank0"] = ranks["rank2"]
    first = compared(a, made(*(section(role, other=other) for role, other in ranks.items())))["first_difference"]
    assert (first["process"], first["also_in"]) == ("rank0", ["rank2"])


def test_ranks_that_drift_apart_are_named() -> None:
    other = {(step, "params"): "x" for step in (3, 4, 5)}
    ranks = made(section("rank0"), section("rank1", other=other), section("rank2"), section("main", 0)).receipt["ranks"]
    assert ranks["drift"] == {"step": 3, "groups": [["rank0", "rank2"], ["rank1"]], "from_the_start": False}
    assert "after step 3" in describe_rank_drift("A", ranks)
    same = made(section("rank0"), section("rank1", other={(1, "grads"): "x"})).receipt["ranks"]
    assert same == {"count": 2, "steps": {"rank0": 5, "rank1": 5}, "drift": None}
    sharded = made(section("rank0"), section("rank1", other={(1, "params"): "x"})).receipt["ranks"]
    assert sharded["drift"]["from_the_start"] and "part of the model" in describe_rank_drift("A", sharded)
    assert made().receipt["ranks"] is None


def test_settings_of_single_ranks_are_told() -> None:
    from dataclasses import replace

    facts = {1: FACTS, 2: {**FACTS, "knobs": {"threads": 4, "mkl_cbwr": None}}}
    receipt = made(section("rank0"), replace(section("rank1"), pid=2), facts=None).receipt
    assert receipt["others"] == {}
    from samerun.record.receipt.assemble import _collect_differing_rank_facts

    told = [section("rank0"), replace(section("rank1"), pid=2)]
    assert _collect_differing_rank_facts(told, facts, FACTS) == {"rank1": {"knobs": {"threads": 4}}}
