"""What of a receipt's circumstances cannot be met here, seen before anything runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from samerun.record.receipt.code_version import code_version, digest_of_file
from samerun.record.receipt.recorded_command import safe_variables
from samerun.record.receipt.redact import as_redacted
from samerun.record.receipt.surroundings import differences


def unmet(receipt: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    """The differences between what a receipt says and this machine, the likeliest reason for other bits first.

    `now`: the facts from outside of any program. No file is read but sources, by paths inside the working
    directory.
    """
    machine = {k: v for k, v in receipt["machine"].items() if k != "torch"}
    variables = as_redacted({**now["variables"], **safe_variables(receipt["variables"])}, receipt["variables"])
    held = ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "TORCH_DISABLE_NATIVE_JIT") if receipt["held"] else ()
    here = {
        **receipt,
        "machine": now["machine"],
        "packages": now["packages"],
        "variables": {**variables, **{n: receipt["variables"][n] for n in held if n in receipt["variables"]}},
        "code": {**_code(receipt["code"]), "sources": _sources(receipt["code"]["sources"])},
    }
    return [asdict(one) for one in differences({**receipt, "machine": machine}, here)]


def _code(recorded: dict[str, Any]) -> dict[str, Any]:
    """The code version here, as far as the receipt tells one: sources say the same more closely."""
    found = code_version(Path.cwd())
    return {key: found[key] if recorded[key] is not None else None for key in ("commit", "diff", "untracked")}


def _sources(recorded: dict[str, str]) -> dict[str, str]:
    here = Path.cwd().resolve()
    found = {}
    for name, digest in recorded.items():
        try:
            path = (here / name).resolve()
            inside = path.is_relative_to(here) and path.is_file()
        except (OSError, ValueError, RuntimeError):
            continue
        if Path(name).is_absolute():
            found[name] = digest  # a stranger's paths are not looked at
        elif inside and (mine := digest_of_file(path)) is not None:
            found[name] = mine
    return found
