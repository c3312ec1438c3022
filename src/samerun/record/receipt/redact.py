"""Keep secrets out of receipts: values with secret-looking names, and digests that a dictionary attack would reveal."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.files import read_regular_file

REDACTED = "<redacted>"
_SECRET = re.compile(
    r"(?:^|[^A-Za-z])(?:[A-Za-z0-9]*TOKEN|[A-Za-z0-9]*SECRETS?|[A-Za-z0-9]*PASSWORD|PASSWD|PASS|PASSPHRASE|PWD"
    r"|[A-Za-z0-9]*APIKEY|KEY|PRIVATE|CREDENTIALS?|CREDS?|AUTH|AUTHORIZATION|BEARER|COOKIE|DSN|SAS|JWT)(?:$|[^A-Za-z])",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"(?:^|[^A-Za-z])(?:MAX|NUM|N|PAD|EOS|BOS|CACHE|PRIMARY|SORT)[^A-Za-z]", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
_KEY_BYTES = 32


def is_secret_name(name: str, extra_name_patterns: Iterable[str] = ()) -> bool:
    """Whether the value under a name is secret: by the name itself, or by the user's patterns."""
    plain = name.lstrip("-")
    if any(fnmatchcase(plain.lower(), pattern.lower().lstrip("-")) for pattern in extra_name_patterns):
        return True
    return _SECRET.search(plain) is not None and _NOT_SECRET.search(plain) is None


def redact_environment(variables: dict[str, str], extra_name_patterns: Iterable[str] = ()) -> dict[str, str]:
    """Variables without the values of secret ones, and without passwords in URLs."""
    extra_name_patterns = tuple(extra_name_patterns)
    return {
        name: REDACTED if is_secret_name(name, extra_name_patterns) else _redact_url_credentials(value)
        for name, value in variables.items()
    }


def redact_command_arguments(words: Iterable[str], extra_name_patterns: Iterable[str] = ()) -> list[str]:
    """The words of a command: `--api-key X`, `--api-key=X`, `token=X` and `NAME_TOKEN=X` without X."""
    extra_name_patterns, found, is_next = tuple(extra_name_patterns), list[str](), False
    for word in words:
        name, equals, _ = word.partition("=")
        if is_next and not word.startswith("--"):
            found.append(REDACTED)
            is_next = False
            continue
        is_next = word.startswith("-") and not equals and is_secret_name(name, extra_name_patterns)
        found.append(
            f"{name}={REDACTED}"
            if equals and is_secret_name(name, extra_name_patterns)
            else _redact_url_credentials(word)
        )
    return found


def _redact_url_credentials(text: str) -> str:
    return _IN_ADDRESS.sub(f"{REDACTED}@", text)


def redact_host_and_folder(circumstances: dict[str, Any], extra_name_patterns: Iterable[str] = ()) -> dict[str, Any]:
    """Leave out host and folder if the user's patterns name them."""
    hidden = {key for key in ("host", "folder") if any(fnmatchcase(key, each.lower()) for each in extra_name_patterns)}
    return {key: REDACTED if key in hidden else value for key, value in circumstances.items()}


def redact_like_recorded(variables_here: dict[str, str], recorded_variables: dict[str, str]) -> dict[str, str]:
    """This machine's values, redacted like those of a receipt, so that the two can be compared."""
    redacted = redact_environment(variables_here)
    return {name: REDACTED if recorded_variables.get(name) == REDACTED else value for name, value in redacted.items()}


def keyed_digest(digest: bytes) -> str:
    """A keyed hash of the digest of a value that may be a password: without the key it cannot be guessed."""
    return blake2b(digest, key=_load_or_create_environment_key(), digest_size=16).hexdigest()


def environment_key_fingerprint() -> str:
    """Identifies the key: digests under different keys cannot be compared."""
    return blake2b(b"samerun environment key\n" + _load_or_create_environment_key(), digest_size=8).hexdigest()


@functools.cache
def _load_or_create_environment_key() -> bytes:
    """The user's key, created at first use; one for this process alone if it cannot be stored."""
    import platformdirs

    fresh = os.urandom(_KEY_BYTES)
    try:
        folder = Path(platformdirs.user_data_dir("samerun"))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "environment.key"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            kept = read_regular_file(path, 1000)
            return kept if len(kept) == _KEY_BYTES else fresh
        with os.fdopen(fd, "wb") as file:
            file.write(fresh)
    except (OSError, RuntimeError):
        pass
    return fresh
