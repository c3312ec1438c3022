"""What a receipt does not tell: values whose names say that they are secret, and digests that a word list opens."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.regular_file import read_small

REDACTED = "<redacted>"
_SECRET = re.compile(
    r"(?:^|[^A-Za-z])(?:[A-Za-z0-9]*TOKEN|[A-Za-z0-9]*SECRETS?|[A-Za-z0-9]*PASSWORD|PASSWD|PASS|PASSPHRASE|PWD"
    r"|[A-Za-z0-9]*APIKEY|KEY|PRIVATE|CREDENTIALS?|CREDS?|AUTH|AUTHORIZATION|BEARER|COOKIE|DSN|SAS|JWT)(?:$|[^A-Za-z])",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"(?:^|[^A-Za-z])(?:MAX|NUM|N|PAD|EOS|BOS|CACHE|PRIMARY|SORT)[^A-Za-z]", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
_KEY_BYTES = 32


def is_secret(name: str, patterns: Iterable[str] = ()) -> bool:
    """Whether what stands under a name is not to be told: by the name itself, or by patterns of the user's."""
    plain = name.lstrip("-")
    if any(fnmatchcase(plain.lower(), pattern.lower().lstrip("-")) for pattern in patterns):
        return True
    return _SECRET.search(plain) is not None and _NOT_SECRET.search(plain) is None


def redact_values(values: dict[str, str], patterns: Iterable[str] = ()) -> dict[str, str]:
    """Variables with the values of secret ones left out, and the passwords of addresses."""
    patterns = tuple(patterns)
    return {name: REDACTED if is_secret(name, patterns) else _redact_address(value) for name, value in values.items()}


def redact_words(words: Iterable[str], patterns: Iterable[str] = ()) -> list[str]:
    """The words of a command: `--api-key X`, `--api-key=X`, `token=X` and `NAME_TOKEN=X` without X."""
    patterns, found, is_next = tuple(patterns), list[str](), False
    for word in words:
        name, equals, _ = word.partition("=")
        if is_next and not word.startswith("--"):
            found.append(REDACTED)
            is_next = False
            continue
        is_next = word.startswith("-") and not equals and is_secret(name, patterns)
        found.append(f"{name}={REDACTED}" if equals and is_secret(name, patterns) else _redact_address(word))
    return found


def _redact_address(text: str) -> str:
    return _IN_ADDRESS.sub(f"{REDACTED}@", text)


def redact_circumstances(circumstances: dict[str, Any], patterns: Iterable[str] = ()) -> dict[str, Any]:
    """Host and folder stand in a receipt unless the user's patterns name them."""
    hidden = {key for key in ("host", "folder") if any(fnmatchcase(key, each.lower()) for each in patterns)}
    return {key: REDACTED if key in hidden else value for key, value in circumstances.items()}


def redact_like(here: dict[str, str], recorded: dict[str, str]) -> dict[str, str]:
    """Values of this machine as a receipt would tell them, for comparing: what it left out is left out here too."""
    told = redact_values(here)
    return {name: REDACTED if recorded.get(name) == REDACTED else value for name, value in told.items()}


def keyed_digest(digest: bytes) -> str:
    """32 hex digits in the place of the digest of a value that may be a password: only our key leads back to it."""
    return blake2b(digest, key=_key(), digest_size=16).hexdigest()


def key_fingerprint() -> str:
    """Which key it was: digests under another one say nothing about whether values are the same."""
    return blake2b(b"samerun environment key\n" + _key(), digest_size=8).hexdigest()


@functools.cache
def _key() -> bytes:
    """The user's own, made at first use; where it cannot be kept, one for this process alone."""
    import platformdirs

    fresh = os.urandom(_KEY_BYTES)
    try:
        folder = Path(platformdirs.user_data_dir("samerun"))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "environment.key"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            kept = read_small(path, 1000)
            return kept if len(kept) == _KEY_BYTES else fresh
        with os.fdopen(fd, "wb") as file:
            file.write(fresh)
    except (OSError, RuntimeError):
        pass
    return fresh
