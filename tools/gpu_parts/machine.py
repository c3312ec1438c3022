"""What a run needs of the machine: torch in this Python, packages that are carried along, samerun's C, and what to
tell of it all.

Nothing is fetched: a package that is missing comes from a folder of wheels, or the parts that need it are skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any

from gpu_parts.checks import ROOT

IMPORTED = {
    "numpy": "numpy", "click": "click", "rich": "rich", "markdown-it-py": "markdown_it", "mdurl": "mdurl",
    "pygments": "pygments", "platformdirs": "platformdirs", "xxhash": "xxhash", "jinja2": "jinja2",
    "markupsafe": "markupsafe", "setuptools": "setuptools", "pytest": "pytest", "pluggy": "pluggy",
    "iniconfig": "iniconfig", "packaging": "packaging",
}  # fmt: skip
"""Packages that samerun, its build and one part need, with what they are imported as."""
CARRIED = tuple(name for name in IMPORTED if name != "numpy")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
BUILD_LIMIT = 400.0
PROBE_LIMIT = 300.0
Facts = dict[str, Any]

PROBE = """
import json, sys
import torch
facts = {"torch": torch.__version__, "cuda": torch.version.cuda, "devices": []}
if len(sys.argv) > 1 and torch.version.cuda and torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        one = torch.cuda.get_device_properties(index)
        facts["devices"].append({"name": one.name, "capability": f"{one.major}.{one.minor}",
                                 "multiprocessors": one.multi_processor_count,
                                 "memory_gib": round(one.total_memory / 2**30, 1)})
    facts["cudnn"] = torch.backends.cudnn.version()
    torch.zeros(1, device="cuda").add_(1).cpu()
print(json.dumps(facts))
"""


class MachineTrouble(Exception):
    """The machine cannot run any part; the text says why and what to do."""


def probe_torch(environment: dict[str, str], device: str) -> Facts:
    """What torch is here, and which devices it sees, asked in a process of its own. Raises MachineTrouble."""
    command = [sys.executable, "-c", PROBE, *(["cuda"] if device == "cuda" else [])]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PROBE_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise MachineTrouble(f"torch did not answer within {PROBE_LIMIT:.0f} seconds.") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MachineTrouble(
            f"{sys.executable} cannot use torch: {last}\n"
            "  Start tools/gpu.py with a Python that has torch 2.10 or newer."
        )
    facts: Facts = json.loads(done.stdout.splitlines()[-1])
    numbers = tuple(int(each) for each in re.findall(r"\d+", facts["torch"])[:2])
    if numbers < (2, 10):
        raise MachineTrouble(f"torch {facts['torch']} is too old: samerun needs 2.10 or newer.")
    if device == "cuda" and not facts["devices"]:
        built = f"was built for CUDA {facts['cuda']}, but sees no device" if facts["cuda"] else "was built without CUDA"
        raise MachineTrouble(f"torch {facts['torch']} {built}.\n  --device emulated runs the same parts on the CPU.")
    return facts


def make_environment(work: Path, wheels: Path | None) -> tuple[dict[str, str], list[str]]:
    """The environment of every part, and the packages that are missing all the same."""
    folders = [ROOT / "src", ROOT / "tools", ROOT / "tests" / "support", ROOT / "benchmarks"]
    missing = [name for name, module in IMPORTED.items() if importlib.util.find_spec(module) is None]
    if missing and wheels is not None:
        unpacked = work / "packages"
        unpack_wheels(missing, wheels, unpacked)
        sys.path.append(str(unpacked))
        folders.append(unpacked)
        missing = [name for name, module in IMPORTED.items() if importlib.util.find_spec(module) is None]
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, folders), *before]),
        "SAMERUN_GPU_WORK": str(work),
        # What is compiled here stays with the results: a home may be another one in the next call, or not there.
        "XDG_CACHE_HOME": str(work / "cache"),
        "PYTHONFAULTHANDLER": "1",
    }
    return environment, missing


def unpack_wheels(packages: list[str], wheels: Path, into: Path) -> None:
    """Unpack, for each of `packages`, its newest wheel that this Python can import."""
    into.mkdir(parents=True, exist_ok=True)
    chosen: dict[str, tuple[list[int], Path]] = {}
    for path in sorted(wheels.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        package, numbers = normalize_name(name), [int(each) for each in re.findall(r"\d+", version)]
        if package in packages and fits_this_python(path.name) and supports_this_python(path):
            chosen[package] = max(chosen.get(package, (numbers, path)), (numbers, path))
    for _, path in chosen.values():
        with zipfile.ZipFile(path) as archive:
            archive.extractall(into)


def supports_this_python(wheel: Path) -> bool:
    """Whether its metadata ask for no newer Python."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(names[0]).decode(errors="replace") if names else ""
    oldest = re.search(r"^Requires-Python:.*>=\s*(\d+)\.(\d+)", text, re.MULTILINE)
    return oldest is None or (int(oldest[1]), int(oldest[2])) <= sys.version_info[:2]


def normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def fits_this_python(wheel: str) -> bool:
    """Whether the tags in a wheel's name are those of this interpreter, or of any."""
    *_, python, abi, machine = wheel.removesuffix(".whl").split("-")
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    named = set(python.split("."))
    fits = bool(named & {"py3", f"py{sys.version_info.major}", ours}) or (
        abi == "abi3" and any(_is_older(each, ours) for each in named)
    )
    free_threaded = "t" in (sysconfig.get_config_var("ABIFLAGS") or getattr(sys, "abiflags", ""))
    if abi not in ("none", "abi3", f"{ours}t" if free_threaded else ours):
        return False
    return fits and (machine == "any" or ("linux" in machine and machine.endswith(platform.machine())
                                          and "musl" not in machine))  # fmt: skip


def _is_older(tag: str, ours: str) -> bool:
    return tag.startswith("cp3") and tag[3:].isdigit() and int(tag[3:]) <= int(ours[3:])


def collect_wheels(into: Path) -> int:
    """Download, where there is a package index, what a bare machine may lack. Exit code of the last failure."""
    into.mkdir(parents=True, exist_ok=True)
    code = 0
    for version in PYTHONS:
        command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--no-deps", "-d", str(into),
                   "--python-version", version, "--platform", f"manylinux2014_{platform.machine()}",
                   "--platform", f"manylinux_2_28_{platform.machine()}", *CARRIED]  # fmt: skip
        code = subprocess.run(command, check=False).returncode or code
    size = sum(path.stat().st_size for path in into.glob("*.whl"))
    print(f"{len(list(into.glob('*.whl')))} wheels, {size / 2**20:.1f} MiB, in {into}")
    return code


class NativeBuild:
    """samerun's C, built in place where that can be done and was not; meanwhile parts that need none of it run."""

    def __init__(self, environment: dict[str, str], missing: list[str]) -> None:
        self._library = ROOT / f"src/samerun/numerics/kernels/_portable{sysconfig.get_config_var('EXT_SUFFIX')}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(environment["SAMERUN_GPU_WORK"]) / "build.log"
        self.state = "built before"
        """What came of it, in a few words."""
        if self._library.exists():
            return
        if shutil.which("gcc") is None and shutil.which("cc") is None:
            self.state = "not built: no C compiler"
        elif "setuptools" in missing:
            self.state = "not built: no setuptools"
        else:
            self._start(environment)

    def _start(self, environment: dict[str, str]) -> None:
        temporary = Path(environment["SAMERUN_GPU_WORK"]) / "objects"
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--build-temp", str(temporary)]
        self.state, self._began = "being built", time.monotonic()
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*command, "--parallel", str(os.cpu_count() or 1)], cwd=ROOT, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait(self, seconds: float) -> None:
        """Until it is done, or so long at most; then it is given up."""
        if self._process is None:
            return
        left = max(0.0, min(seconds, BUILD_LIMIT - (time.monotonic() - self._began)))
        try:
            self._process.wait(left)
        except subprocess.TimeoutExpired:
            self.state = f"not built: not done after {time.monotonic() - self._began:.0f} seconds"
            self.stop()
            return
        last = (self._log.read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
        self.state = "built" if self._library.exists() else f"not built: {last[:200]}"
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def describe_run(torch_facts: Facts, native: str, missing: list[str], device: str) -> Facts:
    """The machine as result_tables.py knows it, and what a GPU adds to it."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from result_tables import describe_machine

    facts: Facts = describe_machine(os.getloadavg()[0])
    facts["torch"] = torch_facts["torch"]
    facts["native code"] = native
    if missing:
        facts["missing packages"] = ", ".join(missing)
    facts["source"] = find_commit() or f"sources {digest_sources()}"
    if device == "emulated":
        facts["gpu"] = "none: kernels emulated on the CPU"
        return facts
    first = torch_facts["devices"][0]
    facts["gpu"] = f"{first['name']}, compute capability {first['capability']}, {first['memory_gib']} GiB"
    facts["gpus"] = len(torch_facts["devices"])
    facts["driver"] = read_driver_version()
    facts["cuda"], facts["cudnn"] = torch_facts["cuda"], torch_facts.get("cudnn")
    return facts


def read_driver_version() -> str | None:
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return None
    return next((word for word in words if re.fullmatch(r"\d+\.\d+(\.\d+)?", word)), None)


def find_commit() -> str | None:
    """The commit that is checked out, with a + where files differ from it; None without git."""
    try:
        commit, changed = (
            subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=30
            ).stdout
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", "src", "native"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"commit {commit.strip()}{'+' if changed.strip() else ''}"


def digest_sources() -> str:
    """Of src and native, for a folder without git."""
    digest = hashlib.sha256()
    for folder in ("src", "native"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".inc", ".cu", ".txt"):
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]
