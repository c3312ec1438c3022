"""Which version of the program ran: its git commit, uncommitted changes and untracked Python files.

The repository may come from a stranger, and a repository's own configuration can name programs: core.fsmonitor,
filters, diff drivers, hooks, pagers, credential helpers, transports of missing objects, and includes of all that. So
git is never pointed at the repository itself, but at an empty temporary one that borrows its objects and index: the
only configuration git reads is ours. Attributes still name filters and drivers, but no program is defined for them.
"""

from __future__ import annotations

import os
import re
import select
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.files import open_regular_file, read_regular_file
from samerun.base.launch import find_trusted_program

MAX_SECONDS = 20.0
"""For each command on a repository: it may hold pipes, for which git waits."""
MAX_GIT_MEMORY = 768 << 20
"""Bytes of git's data: a hostile repository holds objects of gigabytes in some megabytes."""
MAX_OUTPUT_BYTES = 256 << 20
_SMALL = 1 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_INHERITED_VARIABLES = ("HOME", "PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The variables that git inherits; in particular none that begins with GIT_."""


class GitError(Exception):
    """Git is not installed, or a command failed."""


@dataclass(frozen=True)
class Repository:
    """`top`: the working tree; `folder`: its git directory; `common`: the directory with the objects."""

    top: Path
    folder: Path
    common: Path
    commit: str


def find_git_repository(start: Path) -> Repository | None:
    """The repository that contains a folder, with its current commit; None if there is none. Runs no program."""
    here = Path(os.path.realpath(start))
    for top in (here, *here.parents):
        try:
            folder = _find_git_directory(top / ".git")
            if folder is None:
                continue
            common = folder / "commondir"
            shared = Path(os.path.realpath(folder / _read_small_text(common))) if common.exists() else folder
            commit = _read_commit(folder, shared)
        except (OSError, ValueError):
            return None
        return Repository(top, folder, shared, commit) if commit else None
    return None


def _find_git_directory(dot_git_path: Path) -> Path | None:
    """`.git` is the directory itself, or a file that names it (a linked working tree, a submodule)."""
    if dot_git_path.is_dir():
        return dot_git_path if (dot_git_path / "HEAD").exists() else None
    if not dot_git_path.exists():
        return None
    text = _read_small_text(dot_git_path)
    return (
        Path(os.path.realpath(dot_git_path.parent / text.removeprefix("gitdir: ")))
        if text.startswith("gitdir: ")
        else None
    )


def _read_commit(git_directory: Path, common_directory: Path) -> str | None:
    name = _read_small_text(git_directory / "HEAD")
    for _ in range(5):  # a reference may name another reference
        if _COMMIT.fullmatch(name):
            return name
        if not name.startswith("ref: refs/") or ".." in name:
            return None
        reference = name.removeprefix("ref: ")
        found = next(
            (each for each in (git_directory / reference, common_directory / reference) if each.is_file()), None
        )
        name = (
            _read_small_text(found)
            if found is not None
            else _read_packed_reference_or_empty(common_directory, reference)
        )
    return None


def read_reference(repository: Repository, name: str) -> str | None:
    """The hash that a branch, a remote branch or a tag stands for; None if there is none of that name."""
    for folder in ("refs/tags", "refs/heads", "refs/remotes"):
        reference = f"{folder}/{name}"
        if ".." in name or name.startswith(("/", "-")):
            return None
        try:
            file = repository.common / reference
            text = (
                _read_small_text(file)
                if file.is_file()
                else _read_packed_reference_or_empty(repository.common, reference)
            )
        except OSError:
            continue
        if _COMMIT.fullmatch(text):
            return text
    return None


def _read_packed_reference_or_empty(common_directory: Path, reference: str) -> str:
    try:
        lines = read_regular_file(common_directory / "packed-refs", 64 * _SMALL).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    return next((line.split(" ")[0] for line in lines if line.endswith(f" {reference}")), "")


def _read_small_text(path: Path) -> str:
    return os.fsdecode(read_regular_file(path, _SMALL)).strip()


@contextmanager
def open_sandboxed_git(repository: Repository, time_limit_seconds: float = MAX_SECONDS) -> Iterator[SandboxedGit]:
    """Git on the objects, the index and the files of a repository, with a configuration that runs no program.

    time_limit_seconds: for each command, not for all: between two of them `bisect` runs the user's program. Raises
    GitError if git is not installed.
    """
    program = find_trusted_program("git", repository.top)
    if program is None:
        raise GitError("git is not installed")
    with tempfile.TemporaryDirectory(prefix="samerun-", ignore_cleanup_errors=True) as name:
        try:
            _create_sandbox_git_directory(Path(name), repository)
        except OSError as error:
            raise GitError(str(error)) from error
        yield SandboxedGit(program, Path(name), repository, time_limit_seconds)


def _create_sandbox_git_directory(folder: Path, repository: Repository) -> None:
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
        (folder / "info" / "exclude").write_bytes(read_regular_file(exclude, _SMALL))
    index = repository.folder / "index"
    if index.exists():
        # A copy, not a link: git would wait forever for a pipe. It keeps the timestamp, by which git decides which
        # files may have been written after the index.
        with open_regular_file(index) as file, open(folder / "index", "wb") as copy:
            while part := file.read(_SMALL):
                copy.write(part)
            info = os.fstat(file.fileno())
        os.utime(folder / "index", ns=(info.st_atime_ns, info.st_mtime_ns))
    for shared in repository.folder.glob("sharedindex.*"):
        if shared.is_file():
            os.symlink(shared, folder / shared.name)


@dataclass(frozen=True)
class SandboxedGit:
    """Runs git commands on a borrowed repository; `folder` is the temporary one."""

    program: str
    folder: Path
    repository: Repository
    time_limit_seconds: float

    def stream_output(self, *arguments: str) -> Iterator[bytes]:
        """Yield the output of a git command. Raises GitError if it fails, is too slow or prints too much."""
        environment = {
            key: _without_relative_entries(value) if key in _SEARCH_PATHS else value
            for key, value in os.environ.items()
            if key in _INHERITED_VARIABLES
        }
        environment |= {
            "GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.repository.top), "GIT_OPTIONAL_LOCKS": "0",
            "GIT_OBJECT_DIRECTORY": str(self.repository.common / "objects"), "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "", "LC_ALL": "C",
        }  # fmt: skip
        try:
            process = subprocess.Popen(
                [self.program, "--no-pager", *arguments], cwd=self.repository.top, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise GitError(str(error)) from error
        _limit_memory(process.pid)
        yield from _stream_process_output(process, time.monotonic() + self.time_limit_seconds)

    def digest_output(self, *arguments: str) -> str | None:
        """BLAKE2b-256 of the output of a git command; None if there is no output."""
        hasher, has_output = blake2b(digest_size=32), False
        for part in self.stream_output(*arguments):
            hasher.update(part)
            has_output = True
        return hasher.hexdigest() if has_output else None


def _without_relative_entries(search_path: str) -> str:
    """A search path without relative and empty entries, which mean the folder where git works: the stranger's."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if os.path.isabs(entry))


def _limit_memory(pid: int) -> None:
    """Limit the memory of a process that has just been started, where the system can do that from outside."""
    try:
        import resource

        resource.prlimit(pid, resource.RLIMIT_DATA, (MAX_GIT_MEMORY, MAX_GIT_MEMORY))
    except (ImportError, AttributeError, OSError, ValueError):
        pass


def _stream_process_output(process: subprocess.Popen[bytes], monotonic_deadline: float) -> Iterator[bytes]:
    """Yield the output of a process until `monotonic_deadline`. Uses no thread: this may run inside a program whose
    threads are recorded."""
    size = 0
    output: Any = process.stdout
    try:
        while True:
            if (
                os.name == "posix"
                and not select.select([output], [], [], max(0.0, monotonic_deadline - time.monotonic()))[0]
            ):
                raise GitError("git took too long")
            part = os.read(output.fileno(), _SMALL)
            if not part:
                break
            size += len(part)
            if size > MAX_OUTPUT_BYTES:
                raise GitError(f"git printed more than {MAX_OUTPUT_BYTES} bytes")
            yield part
        if process.wait(max(0.1, monotonic_deadline - time.monotonic())) != 0:
            raise GitError(f"git ended with exit code {process.returncode}")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(str(error)) from error
    finally:
        process.kill()
        process.wait()
        output.close()


MAX_UNTRACKED = 1000
MAX_BYTES_HASHED = 16 << 20
"""Of larger files only size, beginning and end are hashed: a huge sparse file costs a hostile repository nothing."""
_DIFF = ("diff", "HEAD", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
         "--ignore-submodules=dirty")  # fmt: skip
"""Full hashes tell binary and large files apart, which git then does not have to hold in memory."""
_UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")


def read_code_version(folder: Path, time_limit_seconds: float = MAX_SECONDS) -> dict[str, Any]:
    """The version of the code in the git repository that contains `folder`; every value is None without one or git,
    or if a command of git takes longer than `time_limit_seconds` seconds.

    commit: its hash. diff: digest of the uncommitted changes, None if there are none. untracked: digests of the
    untracked Python files, by path from the repository's root.
    """
    nothing: dict[str, Any] = {"commit": None, "diff": None, "untracked": None}
    repository = find_git_repository(folder)
    if repository is None:
        return nothing
    try:
        with open_sandboxed_git(repository, time_limit_seconds) as git:
            diff = git.digest_output(*_DIFF)
            listed = b"".join(git.stream_output(*_UNTRACKED))
    except GitError:
        return nothing
    names = sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)[:MAX_UNTRACKED]
    untracked = {name: digest for name in names if (digest := digest_source_file(repository.top / name))}
    return {"commit": repository.commit, "diff": diff, "untracked": untracked}


def digest_source_file(path: Path) -> str | None:
    """64 hex digits; None if the file cannot be read. Of a symbolic link its target path is hashed."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return digest_bytes(os.fsencode(os.readlink(path)))
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            hasher = blake2b(digest_size=32)
            if size > MAX_BYTES_HASHED:
                hasher.update(f"{size} bytes\n".encode())
                hasher.update(file.read(MAX_BYTES_HASHED // 2))
                file.seek(size - MAX_BYTES_HASHED // 2)
            hasher.update(file.read(MAX_BYTES_HASHED))
            return hasher.hexdigest()
    except (OSError, ValueError):
        return None


def digest_bytes(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()
