"""Which version of the program ran: the commit, and what is not committed."""

from __future__ import annotations

import os
import subprocess
from hashlib import blake2b
from pathlib import Path
from typing import Any

MOST_UNTRACKED = 1000
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def code_version(folder: Path) -> dict[str, Any]:
    """Of the git repository around `folder`; every value is None where there is none.

    `commit`: its hash. `diff`: digest of what is changed and not committed, None where nothing is.
    `untracked`: digests of the Python files that git does not know, by path from the repository's root.
    """
    found: dict[str, Any] = {"commit": None, "diff": None, "untracked": None}
    top = _git(folder, "rev-parse", "--show-toplevel")
    commit = _git(folder, "rev-parse", "HEAD")
    if top is None or commit is None:
        return found
    found["commit"] = commit.decode().strip()
    root = Path(os.fsdecode(top).rstrip("\n"))
    diff = _git(root, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")
    found["diff"] = digest_of_bytes(diff) if diff else None
    listed = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py") or b""
    names = sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)[:MOST_UNTRACKED]
    found["untracked"] = {name: digest for name in names if (digest := digest_of_file(root / name))}
    return found


def digest_of_file(path: Path) -> str | None:
    """64 hex digits; None where it cannot be read."""
    try:
        return digest_of_bytes(path.read_bytes())
    except OSError:
        return None


def digest_of_bytes(data: bytes) -> str:
    return blake2b(data, digest_size=32).hexdigest()


def _git(folder: Path, *words: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False,
            env={**os.environ, **_QUIET},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
