"""The recorder's own frames are left out of a program's traceback, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from samerun.record.watching.stack_frames import (
    HIDDEN_SUFFIX,
    hide_frame_from_warnings,
    strip_recorder_frames_from_error_chain,
    without_recorder_frames_unless_own_error,
)


def handing_on(function: object, name: str) -> object:
    """A function that calls another one, as if it stood in a file of that name."""
    made: dict[str, object] = {"function": function}
    exec(compile("def call(*args):\n    return function(*args)", name, "exec"), made)  # our own text
    return made["call"]


def names(error: BaseException) -> list[str]:
    found, at = [], error.__traceback__
    while at is not None:
        found.append(at.tb_frame.f_code.co_name)
        at = at.tb_next
    return found


OURS = str(Path(sys.modules["samerun.record.watching.stack_frames"].__file__ or "").with_name("any.py"))


def fails() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


@pytest.mark.parametrize(("name", "left"), [(OURS, False), (OURS + HIDDEN_SUFFIX, False), ("/somewhere/else.py", True)])
def test_only_ours_are_left_out(name: str, left: bool) -> None:
    with pytest.raises(ValueError, match="second") as caught:
        handing_on(fails, name)()  # type: ignore[operator]
    strip_recorder_frames_from_error_chain(caught.value)
    assert ("call" in names(caught.value)) == left
    assert names(caught.value)[-1] == "fails" and names(caught.value.__cause__ or caught.value) == ["fails"]


@pytest.mark.parametrize(("name", "left"), [(OURS, True), (OURS + HIDDEN_SUFFIX, False)])
def test_an_error_of_ours_is_shown_whole(name: str, left: bool) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        handing_on(divmod, name)(1, 0)  # type: ignore[operator]
    kept = without_recorder_frames_unless_own_error(caught.value.__traceback__)
    shown = []
    while kept is not None:
        shown.append(kept.tb_frame.f_code.co_name)
        kept = kept.tb_next
    assert ("call" in shown) == left


def test_errors_that_refer_to_each_other() -> None:
    one, other = ValueError(), KeyError()
    one.__cause__, other.__context__ = other, one
    strip_recorder_frames_from_error_chain(one)


def test_unseen_takes_anything() -> None:
    assert hide_frame_from_warnings(divmod) is divmod
    assert (
        hide_frame_from_warnings(hide_frame_from_warnings(fails)) is fails
        and fails.__code__.co_filename.count(HIDDEN_SUFFIX) == 1
    )


HOOKS = """
import sys, torch
def hook(kind, error, traceback):
    print("mine", kind.__name__, traceback.tb_next is not None)
sys.excepthook = hook
torch.nn.Linear(2, 2)(torch.ones(3))
"""


@pytest.mark.slow
def test_a_hook_of_the_programs_own_gets_everything(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(HOOKS)
    words = [sys.executable, "-m", "samerun", "run", "--quiet", "--receipt", "r.json", "it.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == "mine RuntimeError True\n" and "Traceback" not in done.stderr
