"""Real cases, made small: the right verdict, cause and line for each; the clean ones are never flagged.

The first line of each program in `zoo/` says what is wrong with it. The checker never sees that line.
A few run with the other tests; all of them with `make test-exhaustive`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checking import check

ZOO = sorted((Path(__file__).parent / "zoo").glob("*.py"))
QUICK = {"01", "03", "05", "09", "17", "21", "23", "27", "65", "71", "73"}
BEYOND = {
    "63_rollout_queue.py": "found by its queue, but its threads are not pinned yet",
}
"""Causes that no experiment confirms yet: the line must be right, the kind may be a neighbouring one."""


OWN_CLASS = pytest.mark.xfail(reason="named where the generator is made, not where its owner is: line 31, not 100")


def params() -> list[object]:
    found: list[object] = []
    for path in ZOO:
        marks = [] if path.name[:2] in QUICK else [pytest.mark.exhaustive]
        if path.name.startswith("81"):
            marks.append(OWN_CLASS)
        found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


@pytest.mark.parametrize("path", params())
def test_zoo(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    header = json.loads(text.splitlines()[0].removeprefix("# "))
    script = tmp_path / path.name
    script.write_text("#\n" + text.split("\n", 1)[1])
    code, report = check([path.name], tmp_path)
    if header["cause"] == "none":
        assert (code, report["verdict"], report["cause"]) == (0, "same", None)
        return
    assert (code, report["verdict"]) == (1, "different")
    found = report["cause"]
    if path.name not in BEYOND:
        assert found["kind"] == header["cause"], found
    assert (found["file"], found["line"]) == (path.name, header["culprit_line"]), found
