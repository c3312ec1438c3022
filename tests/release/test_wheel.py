"""What `make wheels` built, installed as a stranger installs it: in an empty environment, used by a user who is not
root, whose home is read-only, who has no compiler and does not see this repository.

`make test-wheel` runs this, and sets DIST (the folder of the wheels) and PYTHONS (interpreters, separated by spaces).
TORCHES are the releases of torch that it takes; uv's cache keeps them between two runs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from repository_paths import ROOT

DIST = Path(os.environ.get("DIST", "nowhere")).resolve()
PYTHONS = os.environ.get("PYTHONS", "").split()
TORCHES = os.environ.get("TORCHES", "2.10.* >=2.10").split()
NOBODY = 65534
WHERE = """
import os, samerun
from samerun.base.native import find_unloadable_libraries
print(os.path.dirname(samerun.__file__))
print(find_unloadable_libraries())
"""

pytestmark = pytest.mark.skipif(not PYTHONS, reason="needs what `make wheels` builds; `make test-wheel` runs this")

CLEAN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
"""
UNSEEDED = CLEAN.replace(
    "torch.manual_seed(0)\n", "import numpy as np\ntorch.manual_seed(0)\nrng = np.random.default_rng()\n"
).replace("torch.randn(4, 8)", "torch.from_numpy(rng.standard_normal((4, 8), dtype=np.float32))")


def uv(*words: str, **variables: str) -> None:
    command = [sys.executable, "-m", "uv", *words]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"


def version_of(python: str) -> str:
    return subprocess.check_output(
        [python, "-c", "import sys; print('%d%d' % sys.version_info[:2])"], text=True
    ).strip()


class Stranger:
    """A user who is not root, with a read-only home and an empty folder over this repository."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.environment, self.folder, self.home = environment, folder / "project", folder / "home"
        for made in (self.folder, self.home):
            made.mkdir()
        (self.folder / "clean.py").write_text(CLEAN)
        (self.folder / "unseeded.py").write_text(UNSEEDED)
        self.home.chmod(0o555)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        hidden = f"mount -t tmpfs none {shlex.quote(str(ROOT))}"
        demoted = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c",
             f"{hidden} && PATH={self.environment}/bin && exec /usr/bin/{shlex.join(demoted)}"],
            cwd=self.folder, capture_output=True, text=True, timeout=900,
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(self.home), "LANG": "C.UTF-8",
                 "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def make_environment(folder: Path, python: str, *packages: str, **variables: str) -> Path:
    environment = folder / "environment"
    uv("venv", "--quiet", "--python", python, str(environment))
    uv("pip", "install", "--quiet", "--python", f"{environment}/bin/python", *packages, **variables)
    for parent in environment.parents:  # pytest's folders are closed to others
        if parent.stat().st_mode & 0o777 == 0o700 and parent.stat().st_uid == os.geteuid():
            parent.chmod(0o755)
    return environment


def assert_checks_work(stranger: Stranger, missing: str) -> None:
    done = stranger.run("python", "-c", WHERE)
    assert done.returncode == 0, done.stderr
    place, said = done.stdout.splitlines()
    assert place.startswith(str(stranger.environment)) and said == missing
    clean = stranger.run("samerun", "check", "clean.py")
    assert clean.returncode == 0 and clean.stdout.startswith("SAME"), clean.stdout + clean.stderr
    assert ("C libraries are not installed" in clean.stderr) == (missing != "[]")
    unseeded = stranger.run("samerun", "check", "unseeded.py")
    assert unseeded.returncode == 1, unseeded.stdout + unseeded.stderr
    assert "unseeded-numpy-generator  confirmed by experiment\n  unseeded.py:5" in unseeded.stdout


COMBINATIONS = [
    pytest.param(python, torch, id=f"{Path(python).name}-{torch}")
    for python in dict.fromkeys([*PYTHONS[:1], *PYTHONS[-1:]]) for torch in TORCHES
]  # fmt: skip


@pytest.mark.parametrize(("python", "torch"), COMBINATIONS)
def test_a_stranger_installs_the_wheel(python: str, torch: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    (wheel,) = DIST.glob(f"samerun-*-cp{version_of(python)}-*-manylinux_*_x86_64.whl")
    wanted = f"torch{torch}" if torch.startswith(">") else f"torch=={torch}"
    stranger = Stranger(make_environment(tmp_path, python, str(wheel), wanted), tmp_path)
    assert_checks_work(stranger, "[]")
    numerics = stranger.run("samerun", "doctor", "--numerics")
    assert numerics.returncode == 0 and "the C library" in numerics.stdout, numerics.stdout + numerics.stderr


def test_without_a_compiler_the_source_distribution_installs_as_pure_python(tmp_path: Path) -> None:
    (sdist,) = DIST.glob("samerun-*.tar.gz")
    uv(
        "build",
        "--quiet",
        "--wheel",
        "--python",
        PYTHONS[0],
        "--out-dir",
        str(tmp_path / "built"),
        str(sdist),
        CC="/nowhere/cc",
    )
    (wheel,) = (tmp_path / "built").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    stranger = Stranger(make_environment(tmp_path, PYTHONS[0], str(wheel), f"torch=={TORCHES[0]}"), tmp_path)
    every = "['_wrap', '_states', '_portable', '_digest', '_folder', '_entropy', '_watch']"
    assert_checks_work(stranger, every)
    doctor = stranger.run("samerun", "doctor")
    assert "Not installed: _wrap, _states" in doctor.stdout and "gcc or clang" in doctor.stdout


@pytest.mark.parametrize("compiler", ["gcc", f"{sys.executable} -m ziglang cc"], ids=["gcc", "clang"])
def test_the_source_distribution_builds_every_library(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip(f"there is no {compiler}")
    (sdist,) = DIST.glob("samerun-*.tar.gz")
    environment = make_environment(tmp_path, PYTHONS[0], "--no-deps", str(sdist), CC=compiler)
    said = subprocess.check_output([environment / "bin/python", "-c", WHERE], text=True)
    assert said.splitlines()[-1] == "[]"


def test_a_second_build_elsewhere_gives_the_same_files(tmp_path: Path) -> None:
    python = next(one for one in PYTHONS if version_of(one) == sysconfig.get_python_version().replace(".", ""))
    folders = {name: tmp_path / name for name in ("TMPDIR", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    for folder in folders.values():
        folder.mkdir()
    command = [sys.executable, ROOT / "tools/wheels.py", "--out", tmp_path / "dist", "--python", python]
    variables = {name: str(folder) for name, folder in folders.items()}
    subprocess.run([*command, "--architecture", "x86_64"], check=True, env={**os.environ, **variables})
    again = (tmp_path / "dist/SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert len(again) == 2 and set(again) <= set((DIST / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
