"""Versions that are too old are refused in one line that says which ones are supported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from check_command import samerun

from samerun.base.versions import explain_unsupported_version


def old_torch(folder: Path, name: str = "torch", version: str = "2.9.1") -> str:
    """A folder for PYTHONPATH with a package of that name and version, as pip would have installed it."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"__version__ = {version + '+cpu'!r}\nis_available = True\n")
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def test_which_versions_are_supported() -> None:
    assert (
        explain_unsupported_version("torch", "2.9.1+cu126")
        and explain_unsupported_version("torch", "1.13.0")
        and explain_unsupported_version("numpy", "1.25.2")
    )
    for name, version in (("torch", "2.10.0"), ("torch", "2.13.0a0+git1234"), ("torch", "3.0"), ("numpy", "2.4.1")):
        assert explain_unsupported_version(name, version) is None
    assert (
        explain_unsupported_version("torch", "unknown") is None and explain_unsupported_version("random", "1.0") is None
    )


@pytest.mark.parametrize("words", [["check", "p.py"], ["run", "p.py"], ["doctor", "p.py"], ["cost", "p.py"]])
def test_a_command_says_it_in_one_line(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import torch\n")
    done = samerun(words, tmp_path, PYTHONPATH=old_torch(tmp_path / "packages"))
    assert done.returncode == 2 and done.stderr.splitlines() == [
        "samerun: torch 2.9.1 is not supported: samerun 0.1.0 needs torch 2.10 or later.",
        "  pip install 'torch>=2.10'",
    ]


def test_a_program_with_another_torch_is_told_too(tmp_path: Path) -> None:
    packages = old_torch(tmp_path / "packages")
    (tmp_path / "p.py").write_text(f"import sys; sys.path.insert(0, {packages!r})\nimport torch\n")
    done = samerun(["check", "p.py"], tmp_path)
    assert done.returncode == 2 and "torch 2.9.1+cpu is not supported: samerun" in done.stderr
    assert "needs torch 2.10 or later" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name, version", [("torch", "2.9.1"), ("numpy", "1.25.0")])
def test_the_library_says_it(name: str, version: str, tmp_path: Path) -> None:
    program = f"import sys; sys.path.insert(0, {old_torch(tmp_path, name, version)!r}); import samerun\n"
    program += "try: samerun.deterministic(0)\nexcept samerun.SamerunError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{name} {version} is not supported: samerun 0.1.0 needs {name} "), done.stderr
