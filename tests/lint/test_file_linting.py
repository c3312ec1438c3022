"""What `samerun lint` looks at, what it leaves out, what it mends, and what hostile input ends in."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuzz_lint
import pytest
from check_command import samerun
from click.testing import CliRunner, Result
from repository_paths import ROOT, TESTS

from samerun.base.errors import SamerunError
from samerun.commands.lint import command
from samerun.lint.file_linting import (
    Flake8Plugin,
    LintSettings,
    lint_file,
    lint_text,
    read_lint_settings,
    select_rules,
)
from samerun.lint.source_files import find_source_files
from samerun.lint.table import RULES

HAZARD = "import numpy as np\n\nrng = np.random.default_rng()\n"


def lint(*arguments: str, text: str | bytes | None = None) -> Result:
    """The command in this process, with standard input."""
    return CliRunner().invoke(command, list(arguments), input=text)


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.samerun.lint]\nselect = ["default", "SR101", "SR122", "SR151", "SR152"]\n'
    )


# --- exit codes and formats
def test_exit_codes_and_text(tmp_path: Path) -> None:
    Path("a.py").write_text(HAZARD)
    Path("b.py").write_text("x = 1\n")
    assert (clean := lint("b.py")).exit_code == 0 and clean.output == "0 findings in 1 file\n"
    found = lint(".")
    assert found.exit_code == 1
    assert (
        found.output.startswith("a.py:3:7: SR101 default_rng() takes its seed")
        and "1 finding in 2 files" in found.output
    )
    Path("c.py").write_text("def (:\n")
    assert (trouble := lint(".")).exit_code == 2 and "c.py: line 1: it is not Python 3 source" in trouble.output
    for arguments, said in [
        ((), "No file or folder given"), (("nothing.py",), "nothing.py: No such file"),
        (("-", "a.py"), "cannot go with"),
        (("--confirm", "'", "a.py"), "No closing quotation"), (("--select", "XY", "."), "--select XY"),
        (("--confirm", " "), "no script"),
    ]:  # fmt: skip
        done = lint(*arguments)
        assert done.exit_code == 2 and said in done.output, (arguments, done.output)


def test_formats() -> None:
    Path("a b,c.py").write_text("\n\n" + HAZARD)
    record = json.loads(lint("--format", "json", ".").output)
    assert record["schema"] == 1 and record["files"] == 1
    (one,) = record["findings"]
    assert (one["file"], one["line"], one["code"], one["cause"]) == ("a b,c.py", 5, "SR101", "unseeded-numpy-generator")
    assert lint("--json", "-", ".").output == lint("--format", "json", ".").output
    run = json.loads(lint("--format", "sarif", ".").output)["runs"][0]
    (result,) = run["results"]
    assert result["ruleId"] in {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b%2Cc.py" and place["region"]["startLine"] == 5
    shown = lint("--format", "github", ".").output
    assert shown.startswith("::warning file=a b%2Cc.py,line=5,endLine=5,col=7,title=SR101 unseeded-numpy-generator::")


def test_standard_input() -> None:
    done = lint("--stdin-filename", "train.py", "-", text=HAZARD)
    assert done.exit_code == 1 and done.output.startswith("train.py:3:7: SR101")
    assert lint("-", text="x = 1").exit_code == 0
    assert lint("-", text=b"\xff\xfe").exit_code == 2
    assert lint("-", text="x = 1\n" * (1 << 20)).exit_code == 2
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": [HAZARD]}]})
    assert lint("--stdin-filename", "n.ipynb", "-", text=notebook).output.startswith("n.ipynb:cell 1:3:7: SR101")


# --- selection, settings, suppression
def test_selection() -> None:
    assert {rule.code for rule in select_rules((), ())} == {rule.code for rule in RULES if rule.default}
    assert [rule.code for rule in select_rules(("SR103",), ())] == ["SR103"]
    assert len(select_rules(("all",), ("SR1",))) == 0
    assert {rule.code[:4] for rule in select_rules(("default", "SR10"), ("SR12", "SR13", "SR14", "SR15"))} == {
        "SR10",
        "SR11",
    }


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
def test_settings(tmp_path: Path) -> None:
    here = Path("pyproject.toml")
    here.write_text("")
    assert read_lint_settings(tmp_path) == LintSettings()
    here.write_text('[tool.samerun.lint]\nselect = ["SR1"]\nignore = ["SR101"]\nexclude = ["old", "*_x.py"]\n')
    for name in ("a.py", "old/b.py", "c_x.py", "d.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(HAZARD)
    assert lint(".").output == "0 findings in 2 files\n"
    below = tmp_path / "below"
    below.mkdir()
    assert read_lint_settings(below).ignore == ("SR101",)
    for wrong in ('ignore = "SR101"', "more = 1", "ignore = [1]", "[", 'exclude = { a = "\x1b[2J" }'):
        here.write_text(f"[tool.samerun.lint]\n{wrong}\n")
        done = lint(".")
        assert done.exit_code == 2 and "pyproject.toml" in done.output and "\x1b" not in done.output
    here.write_text("[tool.other]\nx = 1\n")
    assert read_lint_settings(tmp_path) == LintSettings()
    here.write_text("[tool]\nsamerun = 3\n")
    with pytest.raises(SamerunError, match="cannot be used"):
        read_lint_settings(tmp_path)


@pytest.mark.parametrize(
    ("comment", "left"),
    [("# noqa", 0), ("# noqa: SR101 only names", 0), ("# noqa:SR1", 0), ("# NOQA: E501,SR101", 0), ("# noqa: E501", 1),
     ("# noqa: SR121", 1), ("# no", 1), ("# type: ignore # noqa: SR101", 0)],
)  # fmt: skip
def test_suppression(comment: str, left: int) -> None:
    text = HAZARD.replace("default_rng()", f"default_rng()  {comment}")
    assert len(lint_text(text, "a.py", RULES).findings) == left
    split = HAZARD.replace("default_rng()", f"default_rng(\n    None\n)  {comment}")
    assert len(lint_text(split, "a.py", RULES).findings) == left


def test_notebooks() -> None:
    cells = [
        {"cell_type": "markdown", "source": "# default_rng()"},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import numpy as np\n"]},
        {"cell_type": "code", "source": "%%bash\nls"},
        {"cell_type": "code", "source": "this is not Python"},
        {"cell_type": "code", "source": "!pip install x\nrng = np.random.default_rng()"},
        {"cell_type": "code", "source": "import os\nnames = os.listdir('d')\n"},
        {"cell_type": "code", "source": "print(1)\ntrain = names[:80]"},
    ]
    before = json.dumps({"cells": cells, "nbformat": 4})
    Path("n.ipynb").write_text(before)
    done = lint("--fix", "n.ipynb")
    assert done.output.startswith("n.ipynb:cell 5:2:7: SR101") and done.exit_code == 1
    assert "n.ipynb:cell 6:2:9: SR121" in done.output and "has at cell 7 line 2" in done.output
    assert Path("n.ipynb").read_text() == before
    for broken in ("", "[]", "{}", '{"cells": 3}', '{"cells": [3]}', "[" * 100_000,
                   '{"cells": [{"cell_type": "code", "source": [1]}]}'):  # fmt: skip
        Path("n.ipynb").write_text(broken)
        assert lint("n.ipynb").exit_code == 2, broken[:30]


# --- files
def test_which_files(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "b/.hidden/d.py", ".venv/e.py", "b/__pycache__/f.py", "g.txt", "h.ipynb"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("b/loop").symlink_to(tmp_path, target_is_directory=True)
    Path("b/broken.py").symlink_to("nowhere")
    os.mkfifo("b/pipe.py")
    Path("b/__pycache__/g.yaml").touch()
    Path("b/i.yaml").touch()
    assert find_source_files(["."], []) == (["a.py", "h.ipynb", "b/c.py"], ["pyproject.toml", "b/i.yaml"], [])
    assert find_source_files(["g.txt", "./b", "b"], ["c.py"]).files == ["g.txt"]


RESUMED = """
import torch
def resume(model, optimizer, saved):
    model(torch.nn.functional.dropout(torch.ones(2)))
    torch.save({"optimizer": optimizer.state_dict()}, "a.pt")
    optimizer.load_state_dict(torch.load("a.pt")["optimizer"])
train(resume)
"""


def test_lost_generators_count_where_a_program_seeds_them() -> None:
    Path("a/tests").mkdir(parents=True)
    Path("a/state.py").write_text(RESUMED + 'if __name__ == "__main__":\n    main()\n')
    Path("a/train.py").write_text("import torch\n")
    assert "SR151" not in lint("a").output
    assert "SR151" in lint("a/state.py").output  # what seeds may lie elsewhere
    Path("a/train.py").write_text("import torch\ntorch.manual_seed(0)\n")
    assert "SR151" not in lint("a").output  # it does not run what lies there
    Path("a/tests/test_state.py").write_text("import torch\nfrom state import resume\ntorch.manual_seed(0)\n")
    assert "SR151" not in lint("a").output
    Path("a/loop.py").write_text("from state import resume\n")
    Path("a/train.py").write_text("import torch\nimport loop\ntorch.manual_seed(0)\n")
    assert "SR151" in lint("a").output


def test_a_function_that_seeds_counts_where_something_calls_it() -> None:
    Path("a").mkdir()
    Path("a/tools.py").write_text("import torch\n\n\ndef seed_everything(\n    seed\n):\n    torch.manual_seed(seed)\n")
    Path("a/state.py").write_text("from tools import seed_everything  # seed_everything(1)\n" + RESUMED)
    assert "SR151" not in lint("a").output
    Path("a/state.py").write_text("from tools import seed_everything\nseed_everything(1)\n" + RESUMED)
    assert "SR151" in lint("a").output
    late = "import os\n\n\ndef make_deterministic(seed):\n    os.environ['PYTHONHASHSEED'] = str(seed)\n"
    Path("a/unused.py").write_text(late)
    assert "SR117" not in lint("a").output
    Path("a/state.py").write_text("from unused import make_deterministic as start\nstart(1)\n")
    assert "SR117" not in lint("a").output  # nobody seeds any more
    Path("a/state.py").write_text("import torch, unused\ntorch.manual_seed(1)\nunused.make_deterministic(1)\n")
    assert "SR117" in lint("a").output


def test_a_main_block_that_only_seeds_tries_the_function_out() -> None:
    Path("a").mkdir()
    late = "import os\n\n\ndef set_seed(seed):\n    os.environ['PYTHONHASHSEED'] = str(seed)\n\n\n"
    Path("a/train.py").write_text("import torch\ntorch.manual_seed(0)\n")
    for block, found in (("    print('x')\n", False), ("    print(torch.rand(3))\n", False), ("    fit()\n", True)):
        Path("a/tools.py").write_text(late + "if __name__ == '__main__':\n    set_seed(1)\n" + block)
        assert ("SR117" in lint("a").output) == found, block
    Path("a/tools.py").write_text(late + "if __name__ == '__main__':\n    set_seed(1)\n")
    assert "SR117" not in lint("a").output
    Path("a/train.py").write_text("import torch, tools\ntorch.manual_seed(0)\ntools.set_seed(1)\n")
    assert "SR117" in lint("a").output


def test_what_stands_in_a_function_counts_where_something_calls_it() -> None:
    """In the project: a file that is named alone may be called from elsewhere."""
    Path("a/b").mkdir(parents=True)
    function = "import numpy as np\n\n\ndef rows():\n    return np.random.default_rng().normal(size=3)\n"
    Path("a/data.py").write_text(function + "\n\n__all__ = ['rows']\n")
    assert "SR101" in lint("a/data.py").output and "SR101" not in lint("a").output
    unused = "from data import (\n    rows,\n)\n", "# rows()\n", "def old():\n    return rows()\n"
    alike = "fit(\n    rows=3)\n", "def main():\n    rows = [3]\n    fit(rows)\n", '"""Call rows()."""\n'
    for use in (*unused, *alike):
        Path("a/train.py").write_text(use)
        assert "SR101" not in lint("a").output, use
    Path("a/test_data.py").write_text("from data import rows\nassert rows()\n")
    assert "SR101" not in lint("a").output  # a test is no program
    called = "def main():\n    rows = rows()\n    fit(rows)\n"
    for use in ("train(rows)\n", "from data import rows as given\n", "def main():\n    fit(rows())\n", called):
        Path("a/train.py").write_text(use)
        assert "SR101" in lint("a").output, use
    Path("a/b/data.py").write_text(function)
    Path("a/train.py").write_text("import data\ndata.rows()\n")
    assert next(one for one in lint("a").output.splitlines() if "SR101" in one).startswith("a/data.py")
    assert lint("a").output.count("SR101") == 1  # the other one is not what is imported
    Path("a/b/old.py").write_text(function)
    Path("a/train.py").write_text("from elsewhere.more import rows\nrows()\n")
    assert "SR101" not in lint("a").output  # none of them is
    Path("a/train.py").write_text("from b.old import rows\nrows()\n")
    assert next(one for one in lint("a").output.splitlines() if "SR101" in one).startswith("a/b/old.py")
    Path("a/train.py").write_text("import registry\nregistry.get('rows')()\n")
    assert lint("a").output.count("SR101") == 3  # which of them, nobody says


def test_a_call_means_the_function_of_the_caller_or_of_what_it_imports_itself() -> None:
    Path("a/b").mkdir(parents=True)
    function = "import numpy as np\n\n\ndef rows():\n    return np.random.default_rng().normal(size=3)\n"
    Path("a/data.py").write_text("def rows():\n    return [3]\n")
    Path("a/b/data.py").write_text(function)
    Path("a/b/load.py").write_text("import b.data\n\n\ndef load():\n    return 1\n")
    begin = "from b.load import load\nload()\n"
    for use, found in (
        ("import data\ndata.rows()\n", False),
        ("def rows():\n    return 1\n\n\nfit(rows())\n", False),
        ("if True:\n    def rows():\n        return 1\n    fit(rows())\n", False),
        ("import b\nb.data.rows()\n", True),
        ("from b.data import rows\nclass Data:\n    def rows(self):\n        return rows()\nData().rows()\n", True),
    ):
        Path("a/train.py").write_text(begin + use)
        assert ("SR101" in lint("a", "--select", "SR101").output) == found, use


@pytest.mark.parametrize(
    ("name", "text"),
    [("setup.py", "from setuptools import setup\nsetup()\n"), ("pyproject.toml", "[project]\nname = 'a'\n"),
     ("setup.cfg", "[metadata]\nname = a\n")],
)  # fmt: skip
@pytest.mark.parametrize("export", ["from .data import rows\n", "__all__ = ['rows']\n"])
def test_what_a_library_exports_is_called_by_its_users(name: str, text: str, export: str) -> None:
    Path("a/b").mkdir(parents=True)
    drawing = "import numpy as np\n\n\ndef rows():\n    return np.random.default_rng().normal()\n"
    Path("a/b/data.py").write_text(drawing)
    Path("a/b/__init__.py").write_text(export)
    assert "SR101" not in lint("a").output  # nobody installs it
    Path("a", name).write_text(text)
    assert "SR101" in lint("a").output
    Path("a/b/__init__.py").write_text("")
    assert "SR101" not in lint("a").output


def test_a_generator_that_another_file_replaces() -> None:
    Path("a").mkdir()
    drawing = "import numpy as np\nclass Data:\n    def __init__(self):\n        self.rng = np.random.default_rng()\n"
    Path("a/data.py").write_text(drawing + "    def draw(self):\n        return self.rng.normal()\n")
    for replace, found in (("data.rng = make(worker)\n", False), ("self.rng = make(worker)\n", True)):
        called = "from data import Data\nData().draw()\ndef start(worker, data):\n    "
        Path("a/train.py").write_text(called + replace)
        assert ("SR101" in lint("a").output) == found


def test_a_method_counts_where_something_calls_it_or_a_base_may() -> None:
    Path("a").mkdir()
    method = "    def rows(self):\n        return np.random.default_rng().normal(size=3)\n"
    Path("a/data.py").write_text("import numpy as np\n\n\nclass Data:\n" + method)
    assert "SR101" not in lint("a").output
    Path("a/train.py").write_text("import data\ndata.Data().rows()\n")
    assert "SR101" in lint("a").output
    Path("a/data.py").write_text("import numpy as np\n\n\nclass Data(Base):\n" + method)
    Path("a/train.py").write_text("import data\ndata.Data()\n")
    assert "SR101" in lint("a").output
    Path("a/train.py").write_text("import data\n")
    assert "SR101" not in lint("a").output  # nothing uses the class
    Path("a/data.yaml").write_text("class_path: data.Data\n")
    assert "SR101" in lint("a").output


def test_a_notebook_seeds_what_it_imports() -> None:
    Path("a").mkdir()
    Path("a/state.py").write_text(RESUMED)
    cells = [{"cell_type": "code", "source": "import torch\ntorch.manual_seed(0)\n"}]
    Path("a/first.ipynb").write_text(json.dumps({"cells": cells}, indent=1))
    assert "SR151" not in lint("a").output
    Path("a/part").mkdir()
    Path("a/part/train.py").write_text("import torch\ntorch.manual_seed(0)\n")
    assert "SR151" not in lint("a").output  # another project, beside it
    Path("a/state.py").rename("a/part/state.py")
    assert "SR151" in lint("a").output  # by a registry, perhaps


def test_a_seed_that_is_put_in_makes_an_order_count() -> None:
    Path("a.py").write_text(
        "import os\nfrom sklearn.model_selection import train_test_split\n"
        "for part in train_test_split(os.listdir('d')):\n    use(part)\n"
    )
    assert "SR142" in lint("a.py").output and "SR121" not in lint("a.py").output
    assert lint("--fix", "a.py").output.startswith("2 fixed, 0 findings")
    assert "train_test_split(sorted(os.listdir('d')), random_state=0)" in Path("a.py").read_text()
    assert lint("--fix", "a.py").output.startswith("0 findings")


def test_many_files_are_looked_at_in_parallel() -> None:
    for number in range(40):
        Path(f"m{number:02}.py").write_text(HAZARD if number % 2 else "x = 1\n")
    lines = [line for line in lint(".").output.splitlines() if "SR101" in line]
    assert [line[:6] for line in lines] == [f"m{number:02}.py" for number in range(1, 40, 2)]


KILLED = """
import os, sys
from samerun.lint import file_linting

own = os.getpid()
os.sched_getaffinity = lambda process: {0, 1}  # or there would be no other process
file_linting.lint_file = lambda file, rules, **_: None if os.getpid() == own else os._exit(1)
from samerun.cli import main

sys.argv = ["samerun", "lint", "."]
main()
"""


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="the patched function is not inherited")
def test_a_killed_process_ends_with_a_message(tmp_path: Path) -> None:
    """In a process of its own: a child of the one that runs the tests would share its pipes."""
    for number in range(40):
        (tmp_path / f"m{number:02}.py").write_text("x = 1\n")
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "was ended from outside" in done.stderr, done


HOSTILE = {
    "nested.py": b"x = " + b"(" * 100_000,
    "signs.py": b"x = " + b"-" * 200_000 + b"1",
    "dots.py": b"x = a" + b".b" * 100_000,
    "sums.py": b"x = 1" + b"+1" * 100_000,
    "calls.py": b"import random\nx = random.seed("
    + b"f(" * 90
    + b")" * 90
    + b")\n"
    + b"if x:\n"
    + b"  y = 1\n" * 20_000,
    "bytes.py": b"x = '\xff\xfe'\n",
    "null.py": b"x = 1\0\n",
    "coding.py": b"# coding: nothing-like-it\nx = 1\n",
    "wrong.py": b"# -*- coding: ascii -*-\nx = '\xc3\xa9'\n",
    "\x1b[2J.py": b"def\n",
    "\u202e.py": b"def\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_end_with_a_message(name: str) -> None:
    Path(name).write_bytes(HOSTILE[name])
    done = lint(name)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 2) and "Traceback" not in done.output
    assert "\x1b" not in done.output and "\u202e" not in done.output
    assert (done.exit_code == 2) == ("samerun: " in done.output)


def test_hostile_files_end_with_a_message() -> None:
    with open("large.py", "wb") as file:
        file.truncate(100 << 20)
    os.mkfifo("pipe.py")
    Path("loop.py").symlink_to("loop.py")
    Path("closed.py").touch(mode=0)
    for name, said in [("large.py", "bytes"), ("pipe.py", "not a regular file"), ("loop.py", "symbolic link")]:
        done = lint(name)
        assert done.exit_code == 2 and said in done.output, done.output
    assert lint("/dev/zero").exit_code == 2


def test_a_folder_with_a_name_that_is_no_text() -> None:
    os.mkdir(b"\xff")
    with open(b"\xff/a.py", "w") as file:
        file.write(HAZARD)
    done = samerun(["lint", "."], Path.cwd())
    assert done.returncode == 1 and "SR101" in done.stdout


# --- mending
def test_fix_touches_nothing_else() -> None:
    text = 'ä = "ö"  # ü\r\nimport os\r\nimport numpy as np\r\n\r\nrng = np.random.default_rng( )   # ß\r\n'
    text += "train = os.listdir('d')[:90]\t; y = np.random.RandomState( None )\r\nz = 1"
    raw = b"\xef\xbb\xbf" + text.encode()
    Path("a.py").write_bytes(raw)
    os.chmod("a.py", 0o750)
    done = lint("--fix", "a.py")
    wanted = text.replace("default_rng( )", "default_rng( 0)").replace("( None )", "( 0 )")
    wanted = wanted.replace("os.listdir('d')", "sorted(os.listdir('d'))")
    assert Path("a.py").read_bytes() == b"\xef\xbb\xbf" + wanted.encode()
    assert done.exit_code == 0 and done.output == "3 fixed, 0 findings in 1 file\n"
    assert os.stat("a.py").st_mode & 0o777 == 0o750
    assert lint("--fix", "a.py").output == "0 findings in 1 file\n"


def test_fix_in_another_encoding() -> None:
    text = "# coding: latin-1\nimport numpy as np\ny = 'é'; x = np.random.default_rng()\n"
    Path("a.py").write_bytes(text.encode("latin-1"))
    assert lint("--fix", "a.py").exit_code == 0
    assert Path("a.py").read_bytes() == text.replace("rng()", "rng(0)").encode("latin-1")


def test_fix_is_idempotent_and_leaves_what_can_be_imported(tmp_path: Path) -> None:
    """Over the programs of the zoo and all examples."""
    for number, text in enumerate(fuzz_lint.read_originals()):
        Path(f"p{number:03}.py").write_text(text)
    assert lint("--fix", "--select", "all", "--quiet", ".").exit_code == 1
    after = {path: path.read_bytes() for path in tmp_path.glob("*.py")}
    for content in after.values():
        ast.parse(content)
    lint("--fix", "--select", "all", "--quiet", ".")
    assert {path: path.read_bytes() for path in tmp_path.glob("*.py")} == after


def test_a_file_that_cannot_be_written() -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    os.mkdir("closed")
    Path("closed/a.py").write_text(HAZARD)
    os.chmod("closed", 0o500)
    done = lint("--fix", "closed")
    os.chmod("closed", 0o700)
    assert done.exit_code == 2 and "cannot be written" in done.output


def test_nothing_is_imported_or_executed(tmp_path: Path) -> None:
    Path("numpy.py").write_text("open('ran', 'w')\n")
    Path("train.py").write_text("import numpy as np\nopen('ran', 'w')\n" + HAZARD)
    done = samerun(["lint", "--fix", "."], tmp_path)
    assert done.returncode == 0 and not Path("ran").exists()


# --- flake8 and pre-commit
def test_the_plugin_of_flake8(tmp_path: Path) -> None:
    (found,) = Flake8Plugin(ast.parse(HAZARD), "a.py", HAZARD.splitlines(keepends=True)).run()
    assert found[:2] == (3, 6) and found[2].startswith("SR101 ")
    if shutil.which("flake8") is not None:
        Path("a.py").write_text(HAZARD)
        done = subprocess.run(["flake8", "--select", "SR", "a.py"], capture_output=True, text=True, check=False)
        assert done.stdout.startswith("a.py:3:7: SR101")


def test_the_hook_names_a_command() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "entry: samerun lint\n" in text


# --- a sample of what `make fuzz` does for long
def test_a_sample_of_generated_sources() -> None:
    parsed = sum(fuzz_lint.run_case(seed) for seed in range(7_000_000, 7_000_150))
    assert 20 < parsed < 150


@pytest.mark.exhaustive
def test_ten_thousand_generated_sources() -> None:
    assert sum(fuzz_lint.run_case(seed) for seed in range(10_000)) > 2_000


def test_the_fuzzer_sees_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(fuzz_lint, "lint_text", fail)
    with pytest.raises(KeyError):
        fuzz_lint.run_case(1)


def test_the_repository_has_few_findings() -> None:
    """Its own sources are looked at as a user's are; what is reported there is looked at by hand."""
    files, _, problems = find_source_files([str(ROOT / "src")], [])
    assert not problems
    found = [
        one for file in random.Random(0).sample(files, 60) for one in lint_file(file, select_rules((), ())).findings
    ]
    assert len(found) <= 3, found
    assert TESTS.is_dir()
