"""The findings of a check as SARIF."""

from __future__ import annotations

import json
from typing import Any

from samerun.base.records import CheckReport, FirstDifference, Fix, FoundCause, Hazard
from samerun.report.sarif import check_report_to_sarif


def report(**fields: Any) -> CheckReport:
    given: dict[str, Any] = {"verdict": "different", "command": ("train.py",), "variations": (), "runs": ()}
    return CheckReport(**given | fields)


def results(made: CheckReport) -> list[dict[str, Any]]:
    log = json.loads(check_report_to_sarif(made, "0.1.0"))
    (run,) = log["runs"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "samerun"
    assert {one["ruleId"] for one in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    found: list[dict[str, Any]] = run["results"]
    return found


def test_each_hazard_that_counts_is_a_result() -> None:
    fix = Fix("seed it", None, "docs/causes.md#time")
    hazards = (
        Hazard("time", "a folder/train.py", 7, ("read at line 7",), True, "clock", fix),
        Hazard("hash-order", "b.py", 0, ("a set",), False, "hash_seed"),
        Hazard("entropy", "c.py", 3, ("ignored",), True, "rerun", ignored=True),
    )
    certain, suspect = results(report(causes=hazards))
    place = certain["locations"][0]["physicalLocation"]
    assert (certain["ruleId"], certain["level"]) == ("time", "error")
    assert place == {"artifactLocation": {"uri": "a%20folder/train.py"}, "region": {"startLine": 7}}
    assert certain["message"]["text"] == "time (confirmed by experiment): read at line 7; seed it"
    assert suspect["level"] == "warning" and "region" not in suspect["locations"][0]["physicalLocation"]


def test_a_difference_without_a_cause_is_said_where_it_shows() -> None:
    first = FirstDifference("rerun", 1, 2, "forward", "", "aten.add.Tensor", "train.py", 9, "same")
    (found,) = results(report(first_difference=first))
    assert found["ruleId"] == "unexplained-difference" and "step 2" in found["message"]["text"]
    (found,) = results(report(first_difference=first, cause=FoundCause("time", "train.py", 4, ("why",), True)))
    assert found["ruleId"] == "time"


def test_the_same_and_trouble_have_no_results() -> None:
    assert results(report(verdict="same")) == [] and results(report(verdict="trouble")) == []
