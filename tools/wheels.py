"""Build what a release consists of: the source distribution, and a wheel for each Python and architecture.

    python tools/wheels.py --out dist [--python PATH ...] [--architecture x86_64 --architecture aarch64] [--all]

The compiler is `zig cc`, which cross-compiles and links against the symbols of an old glibc wherever it runs. Two
builds of the same sources give the same files, byte for byte: time stamps are those of the last commit (or
SOURCE_DATE_EPOCH), file modes and order are fixed, and no flag of the building Python reaches the compiler. Each wheel
is checked before it is put into the folder: every library is there, and auditwheel finds nothing newer than its tag
promises. The headers of Debian's own Python do not do: they are meant for one machine's folders of headers.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.28"
ARCHITECTURES = ("x86_64", "aarch64")
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LIBRARIES = {"_digest", "_entropy", "_folder", "_portable", "_states", "_watch", "_wrap"}


class BuildError(Exception):
    """Something that the caller has to mend; shown without a traceback."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the source distribution and the wheels of a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder they go into")
    parser.add_argument(
        "--python", action="append", help="an interpreter to build for (default: python3.10 ... on PATH)"
    )
    parser.add_argument("--architecture", action="append", choices=ARCHITECTURES, help="default: all")
    parser.add_argument(
        "--all", action="store_true", help=f"fail if an interpreter of {', '.join(VERSIONS)} is missing"
    )
    options = parser.parse_args(arguments)
    try:
        build_release(options.out.resolve(), options.python, options.architecture or ARCHITECTURES, options.all)
    except BuildError as error:
        sys.exit(f"wheels: {error}")


def build_release(out: Path, pythons: list[str] | None, architectures: Sequence[str], require_all: bool) -> None:
    """Build everything into `out`, and a list of SHA-256 beside it. Raises BuildError."""
    interpreters = find_interpreters(pythons)
    missing = [version for version in VERSIONS if version not in interpreters]
    if missing and (require_all or not interpreters):
        raise BuildError(f"no Python {', '.join(missing)} found; name interpreters with --python PATH.")
    if missing:
        print(f"No wheels for Python {', '.join(missing)}: not found here (--python PATH names an interpreter).")
    os.umask(0o022)
    epoch = read_source_date_epoch()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        copy_sources(source)
        sdist = repack_sdist(build_with_uv(source, "--sdist", sys.executable, {}), out, epoch)
        print(sdist.name)
        built = [sdist]
        for architecture in architectures:
            for interpreter in interpreters.values():
                built.append(build_wheel(sdist, Path(folder, "wheel"), interpreter, architecture, out, epoch))
                print(built[-1].name)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)], check=True)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(built)]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def find_interpreters(paths: list[str] | None) -> dict[str, str]:
    """Version ("3.10") -> interpreter, in order of versions: the named ones, or those on PATH that start."""
    candidates = paths or [path for version in VERSIONS if (path := shutil.which(f"python{version}"))]
    show = "import sys, platform; print('%d.%d' % sys.version_info[:2], platform.python_implementation())"
    found = {}
    for path in candidates:  # one on PATH may be a launcher with nothing behind it
        done = subprocess.run([path, "-c", show], capture_output=True, text=True)
        version, _, implementation = done.stdout.strip().partition(" ")
        if done.returncode == 0 and version in VERSIONS and implementation == "CPython":
            found[version] = path
        elif paths:
            raise BuildError(
                f"{path} is not a CPython of {VERSIONS[0]} to {VERSIONS[-1]}: {done.stdout or done.stderr}"
            )
    return {version: found[version] for version in VERSIONS if version in found}


def read_source_date_epoch() -> int:
    """Seconds since 1970 that all time stamps get: SOURCE_DATE_EPOCH, or the time of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode or not done.stdout.strip():
        raise BuildError("this folder has no history to take a time stamp from: set SOURCE_DATE_EPOCH.")
    return int(done.stdout)


def copy_sources(to: Path) -> None:
    """The files that git knows, as they are now: what else lies in the folder does not get into a release."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        shutil.copytree(
            ROOT, to, ignore=shutil.ignore_patterns("*.so", "*.egg-info", "build", "dist", ".venv*", "__pycache__")
        )
        return
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
            (to / name).chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)


def build_with_uv(source: Path, what: str, python: str, variables: dict[str, str], *options: str) -> Path:
    """The one file that a build makes, in a folder beside `source`."""
    out = source.with_name("built")
    shutil.rmtree(out, ignore_errors=True)
    command = [
        *[sys.executable, "-m", "uv", "build", "--no-config", what, "--python", python],
        *["--build-constraints", str(ROOT / "constraints.txt"), "--out-dir", str(out), *options, str(source)],
    ]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"the build for {python} failed.\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    (built,) = (path for path in out.iterdir() if path.suffix in (".gz", ".whl"))
    return built


def repack_sdist(built: Path, out: Path, epoch: int) -> Path:
    """The source distribution with its members in order, of one time, and nobody's."""
    buffer = BytesIO()
    with tarfile.open(built) as old, tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = (0o755 if member.mode & 0o100 else 0o644), {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    sdist = out / built.name
    sdist.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    return sdist


def build_wheel(sdist: Path, folder: Path, python: str, architecture: str, out: Path, epoch: int) -> Path:
    """The wheel of one interpreter and architecture, checked. It is built in `folder`, afresh.

    What knows nothing of Python is compiled once for all versions, and kept beside `folder`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    libraries = folder.with_name(f"libraries-{architecture}")
    libraries.mkdir(exist_ok=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{architecture}"
    show = "import sys; print('cpython-%d%d' % sys.version_info[:2])"
    suffix = subprocess.check_output([python, "-c", show], text=True).strip()
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.{GLIBC}"]
    variables = {
        "SAMERUN_RELEASE_CC": shlex.join(zig),
        "SAMERUN_RELEASE_LIBRARIES": str(libraries),
        "SOURCE_DATE_EPOCH": str(epoch),
        "SETUPTOOLS_EXT_SUFFIX": f".{suffix}-{architecture}-linux-gnu.so",
    }
    built = build_with_uv(source, "--wheel", python, variables, f"-C--build-option=--plat-name={tag}")
    check_wheel(built, tag, architecture)
    return Path(shutil.move(built, out / built.name))


def check_wheel(wheel: Path, tag: str, architecture: str) -> None:
    """Raises BuildError for a wheel that lacks a library, or needs more of a system than its tag says."""
    with zipfile.ZipFile(wheel) as archive:
        there = {Path(name).name.partition(".")[0] for name in archive.namelist() if name.endswith(".so")}
    if there != LIBRARIES:
        raise BuildError(f"{wheel.name} lacks {', '.join(sorted(LIBRARIES - there)) or 'nothing'}, and has {there}.")
    if not wheel.name.endswith(f"-{tag}.whl"):
        raise BuildError(f"{wheel.name} is not tagged {tag}.")
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(wheel)], capture_output=True, text=True)
    needs = re.search(rf'following platform tag: "manylinux_2_(\d+)_{architecture}"', " ".join(shown.stdout.split()))
    if shown.returncode or needs is None or int(needs[1]) > int(GLIBC.partition(".")[2]):
        raise BuildError(f"auditwheel does not agree with {wheel.name}:\n{shown.stdout}{shown.stderr}")


if __name__ == "__main__":
    if platform.system() != "Linux":
        sys.exit("wheels: wheels for Linux are built on Linux; for macOS, cibuildwheel builds them (pyproject.toml).")
    main()
