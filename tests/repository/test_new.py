"""tools/new.py, on a copy of the tree."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from repository_paths import ROOT

NAME = "brand_new"


def load(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("samerun_tools_new", root / "tools/new.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


new = load(ROOT)
KINDS = sorted(new.KINDS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what new.py reads and writes."""
    root = tmp_path / "copy"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("src/samerun", "tools"):
        shutil.copytree(ROOT / folder, root / folder, ignore=ignore)
    (root / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    return subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_three_files_change(tree: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(tree)
    assert new.main([kind, NAME], tree) == 0
    after = files(tree)
    room = f"src/samerun/{new.KINDS[kind].room}"
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {f"{room}/{NAME}.py", f"{room}/table.py", f"tests/test_{kind}_{NAME}.py"}
    assert set(before) <= set(after)
    said = capsys.readouterr().out
    assert all(name in said for name in changed)
    lines_before, lines_after = (set(each[f"{room}/table.py"].decode().splitlines()) for each in (before, after))
    assert f"    {NAME}.{new.KINDS[kind].exposed}," in lines_after - lines_before
    assert len(lines_before - lines_after) <= 1  # an import that stands on one line


@pytest.mark.exhaustive
def test_members_are_in_their_tables_and_their_tests_fail(tree: Path) -> None:
    for kind in KINDS:
        done = run(tree, "tools/new.py", kind, NAME)
        assert done.returncode == 0, done.stderr
    program = "import samerun\nprint(samerun.__file__)\n"
    for kind in new.KINDS.values():
        program += f"from {kind.package}.table import {kind.table}\n"
        program += f"from {kind.package}.{NAME} import {kind.exposed}\n"
        program += f"assert {kind.table}[-1] is {kind.exposed}\n"
    done = run(tree, "-W", "error", "-c", program)
    assert done.returncode == 0 and done.stdout.startswith(str(tree)), done.stderr
    tests = sorted(str(path.relative_to(tree)) for path in (tree / "tests").glob("test_*.py"))
    assert len(tests) == len(KINDS)
    done = run(tree, "-m", "pytest", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 1, done.stdout + done.stderr
    for kind in KINDS:
        assert f"FAILED tests/test_{kind}_{NAME}.py" in done.stdout
        assert f"FAILED tests/test_{kind}_{NAME}.py::test_it_stands_in_the_table" not in done.stdout
        functions = ast.parse((tree / f"tests/test_{kind}_{NAME}.py").read_text()).body
        assert sum(isinstance(node, ast.FunctionDef) for node in functions) >= 3


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_what_is_written_is_clean(tree: Path) -> None:
    for kind in KINDS:
        assert new.main([kind, NAME], tree) == 0
    rooms = [f"src/samerun/{kind.room}" for kind in new.KINDS.values()]
    done = run(tree, "-m", "ruff", "check", "--no-cache", *rooms, "tests")
    assert done.returncode == 0, done.stdout


@pytest.mark.exhaustive
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_what_is_written_is_typed(tree: Path) -> None:
    for kind in KINDS:
        assert new.main([kind, NAME], tree) == 0
    done = run(tree, "-m", "mypy")
    assert not [line for line in done.stdout.splitlines() if NAME in line], done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_names_that_are_none(tree: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("two words", "9lives", "", "class", "match", "Upper", "a-b", "../x", "naïve"):
        refused(tree, [kind, name], capsys, "lower-case identifier")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("variation", "hash_seed", "the name 'hash_seed' is taken"),
        ("variation", "table", "there already"),
        ("cause", "unknown", "the name 'unknown' is taken"),
        ("cause", "time", "the name 'time' is taken"),  # its file is entropy_and_time.py
        ("interceptor", "operators", "there already"),
        ("interceptor", "clock", "there already"),
        ("interceptor", "entropy_uuid", "the name 'entropy-uuid' is taken"),
        ("seed", "numpy", "the name 'numpy' is taken"),
        ("seed", "libraries", "there already"),
        ("switch", "hash_seed", "the name 'hash_seed' is taken"),
        ("switch", "threads", "the name 'threads' is taken"),  # in cpu.py
        ("switch", "cudnn_benchmark", "the name 'cudnn_benchmark' is taken"),  # made by make_torch_flag_switch
        ("switch", "switch", "there already"),
        ("operator", "max_pool", "the name 'max_pool' is taken"),  # in pooling.py
        ("rule", "set_order", "the name 'set-order' is taken"),  # in order_rules.py
    ],
)
def test_names_that_are_taken(tree: Path, kind: str, name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(tree, [kind, name], capsys, said)


def test_a_second_time_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new.main(["seed", NAME], tree) == 0
    capsys.readouterr()
    refused(tree, ["seed", NAME], capsys, f"{NAME}.py is there already")


@pytest.mark.parametrize("arguments", [[], ["variation"], ["variation", "a", "b"]])
def test_wrong_arguments(tree: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused(tree, arguments, capsys, "usage: python tools/new.py KIND NAME")


def test_an_unknown_kind(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = "variation, cause, interceptor, seed, switch, operator, rule"
    refused(tree, ["gadget", NAME], capsys, f"there is no kind 'gadget'. There are: {kinds}.")


def refused(tree: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], said: str) -> None:
    """Exit code 2, a message on standard error, nothing written."""
    before = files(tree)
    assert new.main(arguments, tree) == 2
    told = capsys.readouterr()
    assert said in told.err and not told.out
    assert files(tree) == before
