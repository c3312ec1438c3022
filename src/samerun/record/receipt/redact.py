"""Keep secrets out of receipts: values with secret-looking names, and digests that a dictionary attack would reveal.

No list of names is complete: what is left in is named in docs/what-a-receipt-discloses.md, with the option against it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.files import make_temporary_path_beside, read_regular_file

REDACTED = "<redacted>"
_SECRET_WORDS = frozenset((
    "secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd", "pw", "apikey", "apikeys",
    "credential", "credentials", "cred", "creds", "bearer", "cookie", "cookies", "dsn", "sas", "jwt", "pat",
    "otp", "signature", "sig", "webhook", "authorization", "sessionid", "license",
))  # fmt: skip
_AMBIGUOUS_WORDS = frozenset((
    "token", "tokens", "key", "keys", "pass", "auth", "private",
))  # fmt: skip
_SECRET_ENDINGS = (
    "token", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "apikey", "apikeys", "accesskey",
    "secretkey", "privatekey", "accountkey", "signingkey",
)  # fmt: skip
"""A word made of several, in one case: PGPASSWORD, authtoken."""
_HARMLESS_WORDS = frozenset((
    "max", "min", "num", "number", "n", "count", "counts", "total", "per", "pad", "padding", "eos", "bos",
    "unk", "sep", "mask", "cache", "sort", "batch", "dim", "dims", "size", "sizes", "embed", "embedding",
    "embeddings", "length", "len", "ids", "frame", "frames", "vocab", "head", "heads", "rate", "step", "steps",
    "type", "limit", "budget",
))  # fmt: skip
"""What says of an ambiguous word that it counts or orders something: max_tokens, key_dim."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_USER_INFO = re.compile(r"(?<=://)(?!git@)(?:[^\s/?#]*|[^\s/?#:@]+:(?![0-9]+[/?#])[^\s]*)@")
"""What stands before the last @ of an address's host, also where a password holds / or @."""
_UP_TO_LAST_AT = re.compile(r"(?<!\S)\S*@")
_NAME_AND_SIGN = re.compile(r"(?<![\w.-])(?P<name>[\w.-]+)[\"']?\]?\s*[=:]\s*", re.ASCII)
_VALUE = re.compile(r"(?:(?:Bearer|Basic|Token)\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s\"';&,}]+)", re.ASCII)
"""`name=value` and `name: value` anywhere in a text: connection strings, headers, queries of addresses, JSON. That no
name begins inside of another keeps the search linear."""
_OPTION_AND_VALUE = re.compile(r"(?<!\S)(?P<name>--?[A-Za-z][\w.-]*)(?P<sign>\s+)(?P<value>[^\s-]\S*)", re.ASCII)
_KNOWN_TOKEN = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*|\b(?:hf_\w{16,}|gh[oprsu]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{16,}|xox[abeprs]-[\w-]{8,}|A(?:KIA|SIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"
    r"|(?<=hooks\.slack\.com/services/)\S+",
    re.ASCII | re.DOTALL,
)
"""What shows by itself that it is a token: those of Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, Google, JWT."""
_OPTION = re.compile(r"--?[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*(?:=.*)?", re.DOTALL)
MAX_TEXT = 1 << 14
_KEY_BYTES = 32


def is_secret_name(name: str, extra_name_patterns: Iterable[str] = ()) -> bool:
    """Whether the value under a name is secret: by the name itself, or by the user's patterns."""
    plain = name.lstrip("-")
    if any(fnmatchcase(plain.lower(), pattern.lower().lstrip("-")) for pattern in extra_name_patterns):
        return True
    words = [word.lower() for word in _WORD.findall(plain)]
    if any(
        word in _SECRET_WORDS or (word not in _AMBIGUOUS_WORDS and word.endswith(_SECRET_ENDINGS)) for word in words
    ):
        return True
    return any(word in _AMBIGUOUS_WORDS for word in words) and not _HARMLESS_WORDS.intersection(words)


def redact_environment(variables: dict[str, str], extra_name_patterns: Iterable[str] = ()) -> dict[str, str]:
    """Variables without the values of secret ones, and without what is secret in the text of others."""
    extra_name_patterns = tuple(extra_name_patterns)
    return {
        name: REDACTED
        if is_secret_name(name, extra_name_patterns)
        else redact_and_truncate_text(value, extra_name_patterns)
        for name, value in variables.items()
    }


def redact_command_arguments(words: Iterable[str], extra_name_patterns: Iterable[str] = ()) -> list[str]:
    """The words of a command: `--api-key X`, `--api-key=X`, `token=X` and `NAME_TOKEN=X` without X, and the text of
    other words as `redact_and_truncate_text` leaves it."""
    extra_name_patterns, found, is_next = tuple(extra_name_patterns), list[str](), False
    for word in words:
        if is_next and word == "--":
            found.append(word)
            continue
        if is_next and not _OPTION.fullmatch(word):
            found.append(REDACTED)
            is_next = False
            continue
        name, equals, _ = word.partition("=")
        is_option = word.startswith("-") and not equals and not any(c.isspace() for c in word)
        is_next = is_option and is_secret_name(name, extra_name_patterns)
        if equals and not any(c.isspace() for c in name) and is_secret_name(name, extra_name_patterns):
            found.append(f"{name}={REDACTED}")
        else:
            found.append(redact_and_truncate_text(word, extra_name_patterns))
    return found


def redact_and_truncate_text(text: str, extra_name_patterns: Iterable[str] = ()) -> str:
    """A text without the user names and passwords of addresses, the values of assignments to secret names, and what
    looks like a token of a well-known service. The end of a text of more than `MAX_TEXT` characters is left out."""
    extra_name_patterns = tuple(extra_name_patterns)

    def redact_option(match: re.Match[str]) -> str:
        is_secret = is_secret_name(match["name"], extra_name_patterns)
        return f"{match['name']}{match['sign']}{REDACTED}" if is_secret else match[0]

    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}{REDACTED}"
    text = redact_url_credentials_and_tokens(text)
    kept, at = list[str](), 0
    for match in _NAME_AND_SIGN.finditer(text):
        if match.start() < at or not is_secret_name(match["name"], extra_name_patterns):
            continue
        value = _VALUE.match(text, match.end())
        if value is not None:
            kept += [text[at : match.end()], REDACTED]
            at = value.end()
    return _OPTION_AND_VALUE.sub(redact_option, "".join([*kept, text[at:]]))


def redact_url_credentials_and_tokens(text: str) -> str:
    """A text, such as a path, without the credentials of addresses and without tokens of well-known services."""
    return _KNOWN_TOKEN.sub(REDACTED, _UP_TO_LAST_AT.sub(lambda part: _USER_INFO.sub(f"{REDACTED}@", part[0]), text))


def redact_host_and_folder_if_named(
    circumstances: dict[str, Any], extra_name_patterns: Iterable[str] = ()
) -> dict[str, Any]:
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


def load_or_create_redaction_key_fingerprint() -> str:
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
        if not path.exists() or path.stat().st_size != _KEY_BYTES:  # what a full disk left of it
            part = make_temporary_path_beside(path)
            try:
                with open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                    file.write(fresh)
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
        return read_regular_file(path, _KEY_BYTES)
    except (OSError, RuntimeError):
        pass
    return fresh
