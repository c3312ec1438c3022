"""`samerun check --vary resume`: programs that go on exactly, and programs whose checkpoint lacks something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from check_command import check, samerun
from repository_paths import PROGRAMS

from samerun.base.errors import SamerunError
from samerun.check.execution.interruption import Interruption, StartSettings, parse_interruptions

PROGRAM = str(PROGRAMS / "resuming.py")
SAVED, LOOP = (
    1 + Path(PROGRAM).read_text(encoding="utf-8").splitlines().index(line)
    for line in ("    samerun.checkpoint.save(path, **parts, extra=step)", "    for x, y in loader:")
)


def of_resume(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in report["variations"] if one["name"] == "resume")
    return found


@pytest.mark.exhaustive
def test_a_program_that_goes_on_exactly(tmp_path: Path) -> None:
    code, report = check(["--vary", "resume", PROGRAM], tmp_path)
    assert (code, report["verdict"], of_resume(report)["outcome"]) == (0, "same", "same")
    detail = of_resume(report)["detail"]
    assert "ended by SIGTERM at step 6; taken up again behind step 4" in detail and "SIGKILL at step 6" in detail
    assert [run["exit_code"] for run in report["runs"]] == [0, -15, 0, -9, 0]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacks", "kind", "line", "said"),
    [
        ("rng", "resume-rng", SAVED, "torch's generator and Python's generator were not saved"),
        pytest.param(
            "loader", "resume-position", LOOP, "given the data of the run in one go", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            "scheduler", "resume-position", SAVED, "the scheduler was not saved", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_what_a_checkpoint_lacks_is_named(tmp_path: Path, lacks: str, kind: str, line: int, said: str) -> None:
    code, report = check(["--vary", "none", "--kill", "9", PROGRAM], tmp_path, LACKS=lacks)
    assert (code, of_resume(report)["outcome"]) == (1, "different")
    cause = report["cause"]
    assert (cause["kind"], cause["certain"]) == (kind, True), cause
    assert said in " ".join(cause["evidence"])
    assert report["first_difference"]["step"] in (9, 10, 11)
    assert (Path(cause["file"]).name, cause["line"]) == ("resuming.py", line)


@pytest.mark.exhaustive
def test_a_program_that_saves_on_sigterm(tmp_path: Path) -> None:
    code, report = check(["--vary", "none", "--kill", "5:TERM", PROGRAM], tmp_path, ON_TERM="1")
    assert code == 0 and "SIGTERM at step 5; taken up again behind step 5" in of_resume(report)["detail"]


@pytest.mark.exhaustive
def test_settings_of_ones_own(tmp_path: Path) -> None:
    options = ["--interrupt", "STOP=4", "--resume", "STOP=0", "--vary", "none"]
    code, report = check([*options, PROGRAM], tmp_path)
    assert code == 0 and "interrupted after step 4" in of_resume(report)["detail"]


@pytest.mark.exhaustive
def test_a_program_that_takes_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import torch\nw = torch.ones(2, requires_grad=True)\no = torch.optim.SGD([w], 0.1)\n"
        "for _ in range(4):\n    w.sum().backward()\n    o.step()\n"
    )
    code, report = check(["--vary", "none", "--kill", "2", "p.py"], tmp_path)
    assert code == 0 and of_resume(report)["outcome"] == "skipped"
    assert any(note.startswith("Resuming was NOT tested: the restarted program loaded no") for note in report["notes"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(["--kill", "99"], "was to be ended at step 99, and made 12 steps", marks=pytest.mark.exhaustive),
        (["--kill", "x"], "--kill x: a step from 1"),
        (["--interrupt", "A=1"], "--interrupt is given, and --resume is not"),
        (["--resume", "A=1"], "--resume is given, and --interrupt is not"),
        (["--interrupt", "'", "--resume", ""], "--interrupt ': No closing quotation"),
        (["--interrupt", "", "--resume", "A=1"], "--interrupt: nothing is set"),
        pytest.param(
            ["--interrupt", "LACKS=nothing --nonsense", "--resume", "STOP=0", "--kill", "5"],
            "",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_bad_interruptions(tmp_path: Path, options: list[str], words: str) -> None:
    done = samerun(["check", "--vary", "none", *options, PROGRAM], tmp_path)
    if not words:
        assert done.returncode == 0
        return
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_a_program_that_fails_when_taken_up(tmp_path: Path) -> None:
    done = samerun(["check", "--vary", "none", "--kill", "5", PROGRAM, "--fail-on-resume"], tmp_path)
    assert (
        done.returncode == 2
        and "Taken up again (ended by SIGKILL at step 5), the program ended with exit" in done.stderr
    )


def test_settings_are_variables_then_arguments() -> None:
    given = parse_interruptions("A=1 B='x y' --flag C=2", "D={folder}/c", "7:TERM")
    first = StartSettings((("A", "1"), ("B", "x y")), ("--flag", "C=2"))
    assert given == (Interruption(first, StartSettings((("D", "{folder}/c"),)), 7, "TERM"),)
    assert [one.signal for one in parse_interruptions(None, None, None)] == ["TERM", "KILL"]
    with pytest.raises(SamerunError, match="step from 1"):
        parse_interruptions(None, None, "3:HUP")


@pytest.mark.exhaustive
def test_where_something_else_differs_it_says_that_it_was_not_tried(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import torch\ntorch.full((4,), float(hash('a') % 1000)).relu()\n")
    code, report = check(["--vary", "hash_seed,resume", "p.py"], tmp_path)
    outcomes = {one["name"]: one for one in report["variations"]}
    assert code == 1 and outcomes["hash_seed"]["outcome"] == "different"
    assert outcomes["resume"]["outcome"] == "skipped" and "differs already" in outcomes["resume"]["detail"]
