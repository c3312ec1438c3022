"""Ask git about a repository that a stranger may have made, without reading the repository's configuration.

A repository's own configuration can name programs: core.fsmonitor, filters, diff drivers, hooks, pagers, credential
helpers, transports of missing objects, and includes of all that. So git is never pointed at the repository itself, but
at an empty one made for the moment, which borrows the objects and the index of the other: there is no configuration
to read but ours. Attributes still name filters and drivers, but no program stands behind the names.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.programs import find_program
from samerun.base.regular_file import open_regular, read_small

LONGEST_SECONDS = 20
MOST_OUTPUT = 256 << 20
_SMALL = 1 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_OWN = ("HOME", "PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What git gets of our environment; in particular nothing that begins with GIT_."""


class GitError(Exception):
    """Git cannot be asked: there is no repository, no git, or it gave up."""


@dataclass(frozen=True)
class Repository:
    """`top`: the folder with the files; `folder`: what belongs to this working tree; `common`: the objects."""

    top: Path
    folder: Path
    common: Path
    commit: str


def find_repository(start: Path) -> Repository | None:
    """The repository around a folder, with its current commit. Only files are read; None where there is none."""
    here = Path(os.path.realpath(start))
    for top in (here, *here.parents):
        try:
            folder = _folder_of(top / ".git")
            if folder is None:
                continue
            common = folder / "commondir"
            shared = Path(os.path.realpath(folder / _text(common))) if common.exists() else folder
            commit = _commit_of(folder, shared)
        except (OSError, ValueError):
            return None
        return Repository(top, folder, shared, commit) if commit else None
    return None


def _folder_of(path: Path) -> Path | None:
    """`.git` is the folder itself, or names it (a linked working tree, a submodule)."""
    if path.is_dir():
        return path if (path / "HEAD").exists() else None
    if not path.exists():
        return None
    text = _text(path)
    return Path(os.path.realpath(path.parent / text.removeprefix("gitdir: "))) if text.startswith("gitdir: ") else None


def _commit_of(folder: Path, common: Path) -> str | None:
    name = _text(folder / "HEAD")
    for _ in range(5):  # a reference may name another one
        if _COMMIT.fullmatch(name):
            return name
        if not name.startswith("ref: refs/") or ".." in name:
            return None
        reference = name.removeprefix("ref: ")
        found = next((each for each in (folder / reference, common / reference) if each.is_file()), None)
        name = _text(found) if found is not None else _packed(common, reference)
    return None


def _packed(common: Path, reference: str) -> str:
    try:
        lines = read_small(common / "packed-refs", 64 * _SMALL).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line.split(" ")[0] for line in lines if line.endswith(f" {reference}")), "")


def _text(path: Path) -> str:
    return os.fsdecode(read_small(path, _SMALL)).strip()


@contextmanager
def borrowed(repository: Repository) -> Iterator[Git]:
    """Git with a configuration that can run nothing, on the objects, the index and the files of a repository.

    Raises GitError where git is not there.
    """
    program = find_program("git", repository.top)
    if program is None:
        raise GitError("git is not installed")
    with tempfile.TemporaryDirectory(prefix="samerun-", ignore_cleanup_errors=True) as name:
        try:
            _make_empty(Path(name), repository)
        except OSError as error:
            raise GitError(str(error)) from error
        yield Git(program, Path(name), repository)


def _make_empty(folder: Path, repository: Repository) -> None:
    sha256 = len(repository.commit) == 64
    lines = ["[core]", f"repositoryformatversion = {int(sha256)}", "bare = false", "bigFileThreshold = 16m"]
    lines += ["packedGitWindowSize = 32m", "packedGitLimit = 256m", "attributesFile =", "hooksPath = /dev/null"]
    lines += ["[extensions]", "objectFormat = sha256"] if sha256 else []
    (folder / "config").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "HEAD").write_text(repository.commit + "\n", encoding="ascii")
    for each in ("refs", "info"):
        (folder / each).mkdir()
    exclude = repository.common / "info" / "exclude"
    if exclude.is_file():
        (folder / "info" / "exclude").write_bytes(read_small(exclude, _SMALL))
    index = repository.folder / "index"
    if index.exists():
        # Not a link: git would wait for a pipe. A second name for the file keeps its time, by which git sees what
        # may have been written after it.
        with open_regular(index) as file, open(folder / "index", "wb") as copy:
            while part := file.read(_SMALL):
                copy.write(part)
            info = os.fstat(file.fileno())
        os.utime(folder / "index", ns=(info.st_atime_ns, info.st_mtime_ns))
    for shared in repository.folder.glob("sharedindex.*"):
        if shared.is_file():
            os.symlink(shared, folder / shared.name)


@dataclass(frozen=True)
class Git:
    program: str
    folder: Path
    repository: Repository

    def ask(self, *words: str) -> Iterator[bytes]:
        """What a command prints, a part at a time. Raises GitError where it fails, is too slow or prints too much."""
        environment = {key: value for key, value in os.environ.items() if key in _OWN}
        environment |= {
            "GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.repository.top), "GIT_OPTIONAL_LOCKS": "0",
            "GIT_OBJECT_DIRECTORY": str(self.repository.common / "objects"), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "LC_ALL": "C",
        }  # fmt: skip
        try:
            process = subprocess.Popen(
                [self.program, "--no-pager", *words], cwd=self.repository.top, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise GitError(str(error)) from error
        yield from _read_to_end(process)

    def digest(self, *words: str) -> str | None:
        """BLAKE2b-256 of what a command prints; None where it prints nothing."""
        running, some = blake2b(digest_size=32), False
        for part in self.ask(*words):
            running.update(part)
            some = True
        return running.hexdigest() if some else None


def _read_to_end(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """No thread waits here: this may run inside of a program whose threads are recorded."""
    end, size = time.monotonic() + LONGEST_SECONDS, 0
    output: Any = process.stdout
    try:
        while True:
            if os.name == "posix" and not select.select([output], [], [], max(0.0, end - time.monotonic()))[0]:
                raise GitError(f"git took longer than {LONGEST_SECONDS} s")
            part = os.read(output.fileno(), _SMALL)
            if not part:
                break
            size += len(part)
            if size > MOST_OUTPUT:
                raise GitError(f"git printed more than {MOST_OUTPUT} bytes")
            yield part
        if process.wait(max(0.1, end - time.monotonic())) != 0:
            raise GitError(f"git ended with exit code {process.returncode}")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(str(error)) from error
    finally:
        process.kill()
        process.wait()
        output.close()
