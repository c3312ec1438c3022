"""What a patch changes, line by line; that git takes it; and that the patched program is the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checking import check

from samerun.check.causes.table import CAUSES, cause
from samerun.check.source import diff

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
    ("hash-order", "for name in names():", None),
    ("hash-order", "seed = hash(name)", None),
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
    patch = diff("train.py", 3, cause(kind).patch)
    if after is None:
        assert patch is None
        return
    assert patch is not None
    assert [line[1:] for line in patch.splitlines() if line[:1] == "-" and line[:3] != "---"] == [before]
    assert [line[1:] for line in patch.splitlines() if line[:1] == "+" and line[:3] != "+++"] == [after]
    subprocess.run(["git", "apply"], input=patch.encode(), check=True)
    assert Path("train.py").read_text(encoding="utf-8") == text.replace(before, after)


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
    patch = diff("train.py", 10, cause(kind).patch)
    assert patch is not None
    subprocess.run(["git", "apply"], input=patch.encode(), check=True)
    assert Path("train.py").read_text() == text.replace(f"{module}\n", f"{module}\n\n{call}\n")


def test_what_cannot_be_patched_is_left_alone(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("rng = default_rng(\n")
    for file in (str(broken), str(tmp_path / "missing.py"), str(tmp_path), "<stdin>", "/dev/zero"):
        for each in CAUSES:
            assert diff(file, 1, each.patch) is None


@pytest.mark.parametrize(
    "hazard",
    [
        "import numpy as np\nrng = np.random.default_rng()\nnoise = torch.tensor(rng.normal(size=2)).float()",
        "import random\nnoise = torch.tensor([random.random(), 1.0])",
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
