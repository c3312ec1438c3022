"""What a patch changes, line by line; that git takes it; and that the patched program is the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_command import check, samerun

from samerun.base.errors import SamerunError
from samerun.base.records import CheckReport, Fix, FoundCause, Hazard
from samerun.base.source_edits import make_source_patch
from samerun.check.causes.table import CAUSES, cause_of_kind
from samerun.check.search import report_records

CHANGES = [
    ("unseeded-numpy-generator", "rng = np.random.default_rng()", "rng = np.random.default_rng(0)"),
    ("unseeded-numpy-generator", "a, b = default_rng(), RandomState()", "a, b = default_rng(0), RandomState(0)"),
    ("unseeded-numpy-generator", "rng = Generator(PCG64())", "rng = Generator(PCG64(0))"),
    ("unseeded-numpy-generator", "rng = make()", None),
    ("unseeded-python", "rng = random.Random()", "rng = random.Random(0)"),
    ("unseeded-python", "random.seed()", "random.seed(0)"),
    ("unseeded-numpy-global", "np.random.seed()", "np.random.seed(0)"),
    ("unseeded-torch-generator", "g.seed()", "g.manual_seed(0)"),
    ("unseeded-torch-generator", "s = torch.Generator().seed()", "s = torch.Generator().manual_seed(0)"),
    ("listing-order", "for name in os.listdir(folder):", "for name in sorted(os.listdir(folder)):"),
    ("listing-order", "files = [p for p in Path(d).glob('*.pt')]", "files = [p for p in sorted(Path(d).glob('*.pt'))]"),
    ("listing-order", "names = sorted(os.listdir(folder))", None),
    ("listing-order", "for e in os.scandir(d):", "for e in sorted(os.scandir(d), key=lambda entry: entry.name):"),
    ("listing-order", "with os.scandir(d) as entries:", None),
    ("hash-order", "for name in names:", "for name in sorted(names):"),
    ("hash-order", "for i, name in enumerate(set(words)):", "for i, name in enumerate(sorted(set(words))):"),
    ("hash-order", "x = {w: i for i, w in enumerate(words)}", "x = {w: i for i, w in enumerate(sorted(words))}"),
    ("hash-order", "order = list({*a, *b})", "order = list(sorted({*a, *b}))"),
    ("hash-order", "s = {1}; [[k for k in s] for n in l]", "s = {1}; [[k for k in sorted(s)] for n in l]"),
    ("hash-order", "pairs = [(a, b) for a in these for b in those]", None),
    ("hash-order", "for name in names():", None),
    ("hash-order", "seed = crc32(name)", None),
    ("async-order", "loader = DataLoader(data, in_order=False)", "loader = DataLoader(data, in_order=True)"),
    ("async-order", "for x in pool.imap_unordered(f, xs):", "for x in pool.imap(f, xs):"),
    ("async-order", "r = [f.result() for f in as_completed([a, b])]", "r = [f.result() for f in [a, b]]"),
    ("async-order", "f = []; r = list(as_completed(f))", "f = []; r = list(f)"),
    ("async-order", "f = {a, b}; r = list(as_completed(f))", None),
    ("async-order", "r = list(as_completed(given))", None),
    ("async-order", "for f in as_completed(p.submit(g, x) for x in xs):", "for f in list(p.submit(g, x) for x in xs):"),
    ("async-order", "for c in asyncio.as_completed(tasks):", None),
    ("async-order", "item = queue.get()", None),
    ("worker-seed", "def worker_init_fn(i): np.random.seed(1)", None),
    ("worker-seed", "self.rng = RandomState(47)", None),
    ("uninitialised-memory", "x = torch.empty(3, 4)", "x = torch.zeros(3, 4)"),
    ("uninitialised-memory", "x = torch.empty_like(y) + y.new_empty(2)", "x = torch.zeros_like(y) + y.new_zeros(2)"),
    ("time", "torch.manual_seed(int(time.time()))", "torch.manual_seed(0)"),
    ("time", "rng = default_rng(seed=time.time_ns())", "rng = default_rng(seed=0)"),
    ("time", "seed = int(time.time())", "seed = 0"),
    ("time", "started = time.time()", None),
    ("os-entropy", "seed = int.from_bytes(os.urandom(4), 'little')", "seed = 0"),
    ("os-entropy", "random.seed(uuid.uuid4().int)", "random.seed(0)"),
    ("nondeterministic-operator", "y = torch.index_add(x, 0, i, v)", None),
]  # fmt: skip


@pytest.mark.parametrize("kind, before, after", CHANGES)
def test_the_line_becomes(kind: str, before: str, after: str | None, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    body = "    pass\n" if before.endswith(":") else ""
    text = f'"""äöü, and then code."""\nx = "ß"; y = 1\n{before}\n{body}'
    Path("train.py").write_text(text, encoding="utf-8")
    patch = make_source_patch("train.py", 3, cause_of_kind(kind).make_edits)
    if after is None:
        assert patch is None
        return
    assert patch is not None
    assert [line[1:] for line in patch.splitlines() if line[:1] == "-" and line[:3] != "---"] == [before]
    assert [line[1:] for line in patch.splitlines() if line[:1] == "+" and line[:3] != "+++"] == [after]
    subprocess.run(["git", "apply"], input=patch.encode(), check=True)
    assert Path("train.py").read_text(encoding="utf-8") == text.replace(before, after)


OF_WORKER = "torch.initial_seed() % 2**32"
DRAWN = "int(torch.randint(2**31, ()))"
AROUND = [
    ("time", "{}", "seed = config['seed'] or int(time.time())", "seed = config['seed'] or 0"),
    ("time", "{}", "torch.manual_seed(rank + int(time.time()) % 1000)", "torch.manual_seed(rank + 0)"),
    ("time", "{}", "torch.manual_seed(args.seed if args.seed else time.time_ns())",
     "torch.manual_seed(args.seed if args.seed else 0)"),
    ("os-entropy", "{}", "seed = args.seed or torch.seed()", "seed = args.seed or 0"),
    ("time", "{}", "torch.manual_seed(args.seed)", None),
    ("time", "for trial in trials:\n    {}", "torch.manual_seed(int(time.time()))", None),
    ("time", "def worker_init_fn(i):\n    {}", "np.random.seed(int(time.time()))", f"np.random.seed({OF_WORKER})"),
    ("time", "def begin(i):\n    {}\nDataLoader(data, worker_init_fn=begin)", "np.random.seed(i + int(time.time()))",
     "np.random.seed(i + 0)"),
    ("unseeded-numpy-global", "def begin(i):\n    {}\nDataLoader(data, worker_init_fn=begin)", "np.random.seed()",
     f"np.random.seed({OF_WORKER})"),
    ("unseeded-numpy-generator", "class D:\n    def __init__(self):\n        {}", "self.rng = default_rng()",
     "self.rng = default_rng(0)"),
    ("unseeded-numpy-generator", "class D:\n    def __getitem__(self, i):\n        {}", "rng = default_rng()",
     f"rng = default_rng({DRAWN})"),
    ("unseeded-python", "for epoch in epochs:\n    {}", "rng = random.Random()", f"rng = random.Random({DRAWN})"),
    ("unseeded-torch-generator", "for epoch in epochs:\n    {}", "g.seed()", None),
]  # fmt: skip
"""Cause, what stands around the line, the line, and what becomes of it."""


@pytest.mark.parametrize("kind, around, before, after", AROUND)
def test_a_fixed_seed_keeps_what_the_user_gave_and_makes_no_samples_alike(
    kind: str, around: str, before: str, after: str | None, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\n" + around.replace("{}", before) + "\n"
    Path("train.py").write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if before in one)
    patch = make_source_patch("train.py", line, cause_of_kind(kind).make_edits)
    if patch is not None:
        subprocess.run(["git", "apply"], input=patch.encode(), check=True)
    assert Path("train.py").read_text() == text.replace(before, before if after is None else after)


@pytest.mark.parametrize(
    "kind, module, call",
    [
        ("unseeded-python", "import random", "random.seed(0)"),
        ("unseeded-numpy-global", "import numpy as np", "np.random.seed(0)"),
        ("unseeded-torch", "import torch", "torch.manual_seed(0)"),
    ],
)
def test_a_global_generator_is_seeded_behind_the_imports(
    kind: str, module: str, call: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f'"""What it does."""\n\nimport sys\n{module}\n\nx = 1\n\n\ndef main():\n    return draw()\n\nimport os\n'
    Path("train.py").write_text(text)
    patch = make_source_patch("train.py", 10, cause_of_kind(kind).make_edits)
    assert patch is not None
    subprocess.run(["git", "apply"], input=patch.encode(), check=True)
    assert Path("train.py").read_text() == text.replace(f"{module}\n", f"{module}\n\n{call}\n")


def test_hash_becomes_a_checksum_that_is_imported(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n\ntorch.manual_seed(hash('a') % 2**32)\n")
    patch = make_source_patch("train.py", 3, cause_of_kind("hash-order").make_edits)
    assert patch is not None
    subprocess.run(["git", "apply"], input=patch.encode(), check=True)
    expected = "import torch\nimport zlib\n\ntorch.manual_seed(zlib.crc32(str('a').encode()) % 2**32)\n"
    assert Path("train.py").read_text() == expected


def test_what_cannot_be_patched_is_left_alone(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("rng = default_rng(\n")
    for file in (str(broken), str(tmp_path / "missing.py"), str(tmp_path), "<stdin>", "/dev/zero"):
        for each in CAUSES:
            assert make_source_patch(file, 1, each.make_edits) is None


@pytest.mark.parametrize(
    "hazard",
    [
        pytest.param(
            "import numpy as np\nrng = np.random.default_rng()\nnoise = torch.tensor(rng.normal(size=2)).float()",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("import random\nnoise = torch.tensor([random.random(), 1.0])", marks=pytest.mark.exhaustive),
        pytest.param(
            "names = {'a', 'bb', 'ccc', 'dddd'}\nnoise = torch.tensor([float(len(n)) for n in names])[:2]",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("noise = torch.empty(2) * 2", marks=pytest.mark.exhaustive),
    ],
)
def test_a_patched_program_is_the_same(hazard: str, tmp_path: Path) -> None:
    program = (
        f"import torch\n{hazard}\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(2, 1)\nprint(model(noise).sum())\n"
    )
    (tmp_path / "train.py").write_text(program)
    code, report = check(["train.py"], tmp_path)
    assert code == 1, report
    assert report["fix"]["patch"], report["cause"]
    subprocess.run(["git", "apply"], input=report["fix"]["patch"].encode(), check=True, cwd=tmp_path)
    code, report = check(["train.py"], tmp_path)
    assert code == 0, json.dumps(report["cause"])


HAZARD = "rng = np.random.default_rng()  # "
LONG = HAZARD + "a comment that is far longer than any terminal is wide, with\ta tab in it and ä, ö and ü " * 2

FILES = {
    "train.py": f"import numpy as np\n\n{LONG}\nx = 1\n".encode(),
    "windows.py": f"import numpy as np\r\n\r\n{LONG}\r\nx = 1\r\n".encode(),
    "latin.py": f"# -*- coding: latin-1 -*-\nimport numpy as np\n{LONG}\nx = 1".encode("latin-1"),
    "mark.py": b"\xef\xbb\xbfimport numpy as np\n\n" + HAZARD.encode(),
    "a folder/with spaces.py": f"import numpy as np\n\x0c\n{HAZARD}\n# a\u2028b\nx = 1\n".encode(),
    'quote".py': f"import numpy as np\n\nif x:\n\tpass\n{HAZARD}\n".encode(),
}


def report_of(*fixes: tuple[str, str | None, bool], command: str = "train.py") -> CheckReport:
    """A report with one cause for each (file, patch, certain)."""
    hazards = tuple(Hazard("time", file, 1, (), certain, "rerun", Fix("", patch, "")) for file, patch, certain in fixes)
    first = hazards[0]
    return CheckReport(
        "different", (command,), cause=FoundCause(first.kind, first.file, 1, (), first.certain), fix=first.fix,
        causes=hazards,
    )  # fmt: skip


def seeding(file: str, raw: bytes) -> str:
    patch = make_source_patch(
        file, raw[: raw.index(b"default_rng()")].count(b"\n") + 1, cause_of_kind("unseeded-numpy-generator").make_edits
    )
    assert patch is not None
    return patch


@pytest.mark.parametrize("apply", [["git", "apply"], ["patch", "-p1", "--binary"], []], ids=["git", "patch", "--apply"])
@pytest.mark.parametrize("name", FILES)
def test_a_patch_keeps_every_other_byte(name: str, apply: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    if apply and shutil.which(apply[0]) is None:
        pytest.skip(f"there is no {apply[0]}")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    folder = tmp_path / "below the root"  # of the repository: names are relative to the working directory
    folder.mkdir()
    monkeypatch.chdir(folder)
    file, raw = Path(name), FILES[name]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw)
    file.chmod(0o750)
    report = report_of((name, seeding(name, raw), True))
    if apply:
        report_records.write_patch_or_apply_confirmed_fixes(report, "fix.patch", False, 0)
        subprocess.run(apply, input=Path("fix.patch").read_bytes(), check=True, capture_output=True)
    else:
        assert report_records.write_patch_or_apply_confirmed_fixes(report, None, True, time.time() + 60) == [
            f"--apply: changed {name}. Run the check again."
        ]
        assert file.stat().st_mode & 0o777 == 0o750
    assert file.read_bytes() == raw.replace(b"default_rng()", b"default_rng(0)")


def test_several_changes_of_one_file_go_together(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import random\nimport torch\n\nx = random.random()\ny = torch.empty(2); z = torch.empty(3)\n"
    Path("train.py").write_text(text)
    hazards = {"unseeded-python": 4, "unseeded-torch": 5, "uninitialised-memory": 5}
    patches = [
        make_source_patch("train.py", line, cause_of_kind(kind).make_edits) or "" for kind, line in hazards.items()
    ]
    twice_and_another = (*patches, patches[2], patches[2].replace("zeros", "ones"))
    report = report_of(*(("train.py", each, True) for each in twice_and_another))
    told = report_records.write_patch_or_apply_confirmed_fixes(report, "fix.patch", False, 0)
    assert told == [
        "--patch fix.patch: 1 of the changes of train.py overlap with others and were left out; check again afterwards."
    ]
    subprocess.run(["git", "apply", "fix.patch"], check=True)
    assert Path("train.py").read_text() == (
        "import random\nimport torch\n\nrandom.seed(0)\n\ntorch.manual_seed(0)\n\nx = random.random()\n"
        "y = torch.zeros(2); z = torch.zeros(3)\n"
    )


def test_apply_changes_nothing_that_it_should_not(tmp_path: Path, monkeypatch: Any) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    raw = FILES["train.py"]
    for file in (Path("train.py"), tmp_path / "outside.py"):
        file.write_bytes(raw)
    Path("link.py").symlink_to(tmp_path / "outside.py")
    began = time.time() + 60
    patch = seeding("train.py", raw)
    told = report_records.write_patch_or_apply_confirmed_fixes(report_of(("train.py", patch, False)), None, True, began)
    assert told == ["--apply: the cause is not confirmed by an experiment, so nothing was changed; see --patch."]
    told = report_records.write_patch_or_apply_confirmed_fixes(report_of(("train.py", None, True)), "-", True, began)
    assert len(told) == 2 and all("no change that could be made mechanically" in line for line in told)
    for outside in (str(tmp_path / "outside.py"), "link.py"):
        with pytest.raises(SamerunError, match="lies outside of this folder; nothing was changed"):
            report = report_of(("train.py", patch, True), (outside, seeding(outside, raw), True))
            report_records.write_patch_or_apply_confirmed_fixes(report, None, True, began)
    with pytest.raises(SamerunError, match=r"train\.py was changed while the program was checked"):
        report_records.write_patch_or_apply_confirmed_fixes(
            report_of(("train.py", patch, True)), None, True, time.time() - 60
        )
    assert Path("train.py").read_bytes() == (tmp_path / "outside.py").read_bytes() == raw
    Path("train.py").write_bytes(b"# a line more\n" + raw)
    os.utime("train.py", (0, 0))
    for option in ((None, True), ("fix.patch", False)):
        with pytest.raises(SamerunError, match="was changed"):
            report_records.write_patch_or_apply_confirmed_fixes(report_of(("train.py", patch, True)), *option, began)
    assert Path("train.py").read_bytes() == b"# a line more\n" + raw and not Path("fix.patch").exists()


@pytest.mark.exhaustive
def test_what_the_terminal_shows_can_be_applied(tmp_path: Path) -> None:
    words = "with more words than a terminal has columns, " * 4
    raw = (
        f"import numpy as np\r\nimport torch\r\n\r\nif True:\r\n\trng = np.random.default_rng()  # {words}\r\n"
        "\tnoise = torch.tensor(rng.normal(size=2)).float()\r\nprint((noise * 2).sum())\r\n"
    ).encode()
    program = tmp_path / "train.py"
    program.write_bytes(raw)
    words = ["check", "--vary", "rerun", "--patch", "fix.patch", "--apply", "--json", "report.json", "train.py"]
    done = subprocess.run([sys.executable, "-m", "samerun", *words], cwd=tmp_path, capture_output=True,
                          env={**os.environ, "COLUMNS": "80"})  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr == b"samerun: --apply: changed train.py. Run the check again.\n"
    mended = raw.replace(b"default_rng()", b"default_rng(0)")
    assert program.read_bytes() == mended
    report = json.loads((tmp_path / "report.json").read_text())["fix"]["patch"].encode()
    shown = done.stdout[done.stdout.index(b"--- a/train.py") :]
    assert (tmp_path / "fix.patch").read_bytes() == report and shown.startswith(report)
    for patch in (shown, report):
        program.write_bytes(raw)
        subprocess.run(["git", "apply"], input=patch, cwd=tmp_path, check=True)
        assert program.read_bytes() == mended
    assert check(["--vary", "rerun", "train.py"], tmp_path)[0] == 0, "the mended program is the same"
    done = samerun(["check", "--patch", "train.py", "p.py"], tmp_path)
    assert done.returncode == 2 and "there is such a file, and it is not a patch" in done.stderr
