"""What a checkpoint lacks, in programs of other structures: named and confirmed; with nothing lacking, the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_command import check
from repository_paths import PROGRAMS

PROGRAMS = PROGRAMS / "resuming"
SETTINGS = ["--interrupt", "--stop 4 --save {folder}/c.pt", "--resume", "--resume {folder}/c.pt"]
CASES = {
    # program, what it lacks: how it is interrupted, kind, text of the culprit's line, words, whether it is confirmed
    ("epoch_class", "optimizer"): (["--kill", "7"], "resume-position", "torch.save(", "the optimizer was not", True),
    ("epoch_class", "early"): (
        ["--kill", "7"],
        "resume-rng",
        "torch.set_rng_state(",
        "puts torch's generator back",
        True,
    ),
    ("hooks", "numpy"): (["--kill", "8:TERM"], "resume-rng", "torch.save(", "NumPy's generator was not saved", True),
    ("hooks", "position"): (["--kill", "8"], "resume-position", "while self.step", "and its random generators", True),
    ("generators", "augment"): (["--kill", "10"], "resume-position", "enumerate(loader)", "begins again", False),
    ("generators", "place"): (["--kill", "9"], "resume-position", "in enumerate(loader)", "makes 3 steps more", False),
    ("sampler", "epoch"): (["--kill", "7"], "resume-position", "in enumerate(loader)", "of the run in one go", True),
    ("scaled", "scheduler"): (SETTINGS, "resume-position", "torch.save(", "the scheduler was not saved", True),
    ("scaled", "scaler"): (SETTINGS, "resume-position", "torch.save(", "the gradient scaler was not saved", True),
    ("scaled", "both"): (
        SETTINGS,
        "resume-position",
        "torch.save(",
        "the scheduler and the gradient scaler were",
        True,
    ),
    ("scaled", "rate"): (SETTINGS, "resume-position", "", "put back the difference stays", False),
}
CLEAN = {
    "epoch_class": ["--vary", "resume"],
    "hooks": ["--kill", "8"],
    "generators": ["--kill", "9"],
    "scaled": SETTINGS,
    "sampler": ["--kill", "7"],
}


def program(name: str) -> str:
    return str(PROGRAMS / f"{name}.py")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "lacks"), CASES, ids=lambda each: str(each))
def test_what_is_lost_is_named(name: str, lacks: str, tmp_path: Path) -> None:
    options, kind, text, words, sure = CASES[name, lacks]
    code, report = check(["--vary", "none", *options, program(name)], tmp_path, LACKS=lacks)
    cause = report["cause"]
    assert (code, cause["kind"], cause["certain"]) == (1, kind, sure), cause
    assert text in Path(cause["file"]).read_text().splitlines()[cause["line"] - 1], cause
    assert words in " ".join(cause["evidence"]), cause


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CLEAN)
def test_a_program_that_loses_nothing_is_not_flagged(name: str, tmp_path: Path) -> None:
    options = CLEAN[name] if "--vary" in CLEAN[name] else ["--vary", "none", *CLEAN[name]]
    code, report = check([*options, program(name)], tmp_path)
    assert (code, report["verdict"], report["variations"][-1]["outcome"]) == (0, "same", "same"), report


@pytest.mark.exhaustive
def test_a_program_that_differs_by_itself_says_nothing_of_its_checkpoints(tmp_path: Path) -> None:
    text = Path(program("epoch_class")).read_text().replace("torch.manual_seed(3)", "torch.seed()")
    (tmp_path / "p.py").write_text(text)
    code, report = check(["--vary", "resume", "p.py"], tmp_path)
    assert (code, report["cause"]["kind"]) == (1, "os-entropy"), report
    assert [v["outcome"] for v in report["variations"]] == ["skipped"], report
