"""Findings that an experiment proves or drops, and hints of `lint` beside a difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from check_command import samerun

from samerun.base.records import CheckReport, FirstDifference, FoundCause, LintFinding, Outcome
from samerun.commands.lint import SHOWN_BY, add_lint_hints_if_uncertain, judge_finding, list_files_and_local_imports
from samerun.lint.table import RULES

PROGRAM = """
import os
import torch

torch.manual_seed(0)
names = {"ant", "bee", "cat", "dog", "elk", "fox"}
numbers = {name: i for i, name in enumerate(names)}
kept = torch.tensor([float(numbers[name]) for name in sorted(names)])
folder = os.environ["FOLDER"]
for name in ("b", "a", "c", "e", "d"):
    open(os.path.join(folder, name), "w").close()
labels = {name: i for i, name in enumerate(os.listdir(folder))}
print((kept * kept[0]).sum().item(), len(labels))
"""


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the experiments say of the findings in the program, by code."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "train.py").write_text(PROGRAM)
    (folder / "data").mkdir()
    done = samerun(
        ["lint", "--select", "SR121,SR122", "--confirm", "train.py", "--quiet", "--json", "-"],
        folder,
        FOLDER=str(folder / "data"),
    )
    assert done.returncode == 1, done.stderr
    return {one["code"]: one["confirmed"] for one in json.loads(done.stdout)["findings"]}


@pytest.mark.exhaustive
def test_an_experiment_proves_or_drops(confirmed: dict[str, str]) -> None:
    """The set decides the result; the listing is numbered, and its numbers are for nothing."""
    assert confirmed == {"SR122": "proven", "SR121": "dropped"}


RESUMED = """
import os

import torch

path = os.path.join(os.environ.get("SAMERUN_CHECKPOINTS", "."), "a.pt")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    start = saved["epoch"]
for epoch in range(start, 4):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, path)
print(model[0].weight.sum().item())
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("folder", "said"), [('os.environ.get("SAMERUN_CHECKPOINTS", ".")', "proven"), ('"."', "untested")]
)
def test_an_interruption_proves_what_concerns_resuming(tmp_path: Path, folder: str, said: str) -> None:
    """Where the program keeps its checkpoints elsewhere, it is untested, and the reason is told."""
    (tmp_path / "train.py").write_text(RESUMED.replace('os.environ.get("SAMERUN_CHECKPOINTS", ".")', folder))
    done = samerun(["lint", "--select", "SR151", "--confirm", "train.py", "--quiet", "--json", "-"], tmp_path)
    assert [one["confirmed"] for one in json.loads(done.stdout)["findings"]] == [said], done.stderr
    assert ("SAMERUN_CHECKPOINTS" in done.stderr) == (said == "untested")


FINDING = LintFinding(file="train.py", line=4, column=1, end_line=5, end_column=2, code="SR121", name="listing",
                      message="", cause="listing-order", fix="", fixable=True)  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "outcome", "said"),
    [
        (FoundCause("listing-order", "train.py", 5, (), True), "different", "proven"),
        (FoundCause("listing-order", "train.py", 5, (), False), "different", "untested"),
        (FoundCause("listing-order", "other.py", 5, (), True), "different", "untested"),
        (FoundCause("listing-order", "train.py", 6, (), True), "different", "untested"),
        (FoundCause("hash-order", "train.py", 5, (), True), "same", "dropped"),
        (None, "same", "dropped"),
        (None, "skipped", "untested"),
    ],
)
def test_what_a_check_says_of_a_finding(cause: FoundCause | None, outcome: str, said: str) -> None:
    outcomes = (Outcome("listing_order", outcome, ""), Outcome("rerun", "same", ""))  # type: ignore[arg-type]
    assert judge_finding(FINDING, CheckReport("different", (), outcomes, cause=cause)) == said


def test_a_cause_may_stand_in_what_the_finding_calls(tmp_path: Path) -> None:
    """A model that is made before the seed draws in its constructor."""
    (tmp_path / "train.py").write_text("class Net:\n    def __init__(self):\n        draw()\n\n\nnet = Net()\n")
    finding = replace(FINDING, file=str(tmp_path / "train.py"), line=6, end_line=6, cause="unseeded-torch")
    outcomes = (Outcome("rerun", "different", ""),)
    for line, said in ((3, "proven"), (5, "untested")):
        cause = FoundCause("unseeded-torch", str(tmp_path / "train.py"), line, (), True)
        assert judge_finding(finding, CheckReport("different", (), outcomes, cause=cause)) == said


def test_every_rule_can_be_shown_by_variations_that_there_are() -> None:
    from samerun.check.variations.table import VARIATIONS

    names = {one.name for one in VARIATIONS}
    for rule in RULES:
        assert set(SHOWN_BY.get(rule.cause, ("rerun",))) <= names


def test_hints_stand_beside_a_difference_without_a_certain_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import tools\nfrom package import part\n")
    Path("tools.py").write_text(PROGRAM)
    Path("package").mkdir()
    Path("package/__init__.py").touch()
    Path("package/part.py").write_text("import train, numpy as np\nrng = np.random.default_rng()\n")
    assert sorted(list_files_and_local_imports(["train.py"])) == [
        "package/__init__.py", "package/part.py", "tools.py", "train.py"
    ]  # fmt: skip
    first = FirstDifference("listing_order", 1, 1, "forward", "", "aten.mul", "train.py", 1, "same")
    suspect = FoundCause("unknown", "train.py", 1, (), False)
    report = CheckReport("different", ("train.py",), first_difference=first, cause=suspect)
    (note,) = add_lint_hints_if_uncertain(report, ["train.py", "--x"]).notes
    assert note.startswith("samerun lint sees at tools.py:12 (SR121, listing-order)") and "No experiment" in note
    rerun = replace(report, first_difference=replace(first, variation="rerun"))
    (note,) = add_lint_hints_if_uncertain(rerun, ["train.py"]).notes
    assert "package/part.py:2 (SR101" in note
    certain = replace(report, cause=replace(suspect, certain=True))
    assert add_lint_hints_if_uncertain(certain, ["train.py"]) is certain
    same = CheckReport("same", ("train.py",))
    assert add_lint_hints_if_uncertain(same, ["train.py"]) is same
