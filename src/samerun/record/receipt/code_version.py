"""Which version of the program ran: the commit, and what is not committed."""

from __future__ import annotations

import os
import stat
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.regular_file import open_regular
from samerun.record.receipt.git import GitError, borrowed, find_repository

MOST_UNTRACKED = 1000
MOST_WHOLE = 16 << 20
"""Larger files count by their size and their ends: a sparse file costs its maker nothing."""
_DIFF = ("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
_UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")


def code_version(folder: Path) -> dict[str, Any]:
    """Of the git repository around `folder`; every value is None where there is none, or git cannot be asked.

    `commit`: its hash. `diff`: digest of what is changed and not committed, None where nothing is.
    `untracked`: digests of the Python files that git does not know, by path from the repository's root.

    The repository may be a stranger's: nothing that its configuration names is run (`git.py`).
    """
    nothing: dict[str, Any] = {"commit": None, "diff": None, "untracked": None}
    repository = find_repository(folder)
    if repository is None:
        return nothing
    try:
        with borrowed(repository) as git:
            diff = git.digest(*_DIFF)
            listed = b"".join(git.ask(*_UNTRACKED))
    except GitError:
        return nothing
    names = sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)[:MOST_UNTRACKED]
    untracked = {name: digest for name in names if (digest := digest_of_file(repository.top / name))}
    return {"commit": repository.commit, "diff": diff, "untracked": untracked}


def digest_of_file(path: Path) -> str | None:
    """64 hex digits; None where it cannot be read. A link counts by where it leads to."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            return digest_of_bytes(os.fsencode(os.readlink(path)))
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            running = blake2b(digest_size=32)
            if size > MOST_WHOLE:
                running.update(f"{size} bytes\n".encode())
                running.update(file.read(MOST_WHOLE // 2))
                file.seek(size - MOST_WHOLE // 2)
            running.update(file.read(MOST_WHOLE))
            return running.hexdigest()
    except (OSError, ValueError):
        return None


def digest_of_bytes(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()
