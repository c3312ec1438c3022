"""Run a program under the recorder and assemble its receipt when it has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Literal

from samerun.base import supervise
from samerun.base.errors import SamerunError
from samerun.base.launch import prepend_bootstrap_to_pythonpath
from samerun.base.supervise import ProgramExit
from samerun.base.target import Target
from samerun.base.work_folder import temporary_work_folder
from samerun.record.config import CONFIG_VARIABLE, ROLE_VARIABLE, WatchConfig
from samerun.record.receipt import receipt_file
from samerun.record.receipt.assemble import (
    NewReceipt,
    assemble_receipt,
    build_sections_of_traces,
    describe_host,
    read_facts_by_pid,
)
from samerun.record.receipt.code_version import read_code_version

FACTS_VARIABLE = "SAMERUN_FACTS"


@dataclass(frozen=True)
class RunRequest:
    """A run to make. `fallback_facts`: those used if the program records none itself."""

    target: Target
    form: str
    version: str
    held_settings: dict[str, Any] | None
    environment: Mapping[str, str]
    fallback_facts: dict[str, Any]
    depth: Literal["auto", "ops", "steps"] = "steps"
    redact_patterns: tuple[str, ...] = ()
    stdout: IO[Any] | None = None
    """Where the program's standard output goes; None: to ours."""


def run_and_write_receipt(
    request: RunRequest, receipt_path: Path | None, signing_key_path: Path | None = None
) -> tuple[ProgramExit, NewReceipt]:
    """Run the program to its end and write the receipt to a file, if one is named.

    With depth "ops", keep the traces beside it. `signing_key_path`: sign the receipt with this private key. Raises
    SamerunError if the program cannot be started, or the receipt cannot be written.
    """
    code = read_code_version(Path(request.target.user_folder or "."))
    with temporary_work_folder(_choose_trace_folder_parent(receipt_path) if request.depth == "ops" else None) as folder:
        begin = time.time()
        ended = _run_watched_program(request, folder)
        made = _make_receipt(request, folder, ended, code, begin)
        if signing_key_path is not None:
            made.receipt["signature"] = receipt_file.sign_digest(made.receipt["digest"], signing_key_path)
        if receipt_path is not None:
            receipt_file.write(receipt_path, made, folder if request.depth == "ops" else None)
    return ended, made


def _choose_trace_folder_parent(receipt_path: Path | None) -> str | None:
    """Traces by operator can be large: they are written to the file system on which they will stay."""
    return None if receipt_path is None else os.path.dirname(os.path.realpath(receipt_path))


def _run_watched_program(request: RunRequest, folder: Path) -> ProgramExit:
    watch = WatchConfig(folder=str(folder), depth=request.depth, user_folder=request.target.user_folder, receipt=True)
    config = folder / "watch.json"
    config.write_text(watch.to_json(), encoding="utf-8")
    environment = prepend_bootstrap_to_pythonpath(
        {**request.environment, CONFIG_VARIABLE: str(config), FACTS_VARIABLE: str(folder)}
    )
    environment.pop(ROLE_VARIABLE, None)
    command = list(request.target.command)
    try:
        return supervise.run_and_forward_signals(command, environment, request.stdout)
    except OSError as error:
        raise SamerunError(f"{command[0]} cannot be started: {error.strerror}.") from error


def _make_receipt(
    request: RunRequest, folder: Path, ended: ProgramExit, code: dict[str, Any], begin_seconds: float
) -> NewReceipt:
    sections, wrong = build_sections_of_traces(folder)
    words = list(request.target.shown)
    if request.form == "module":
        words = words[1:]  # "-m"
    return assemble_receipt(
        version=request.version,
        command={"form": request.form, "words": words},
        held_settings=request.held_settings,
        ending={"exit_code": ended.exit_code, "signal": ended.signal},
        code=code,
        sections=sections,
        read_errors=wrong,
        facts=read_facts_by_pid(folder),
        fallback_facts=request.fallback_facts,
        circumstances=describe_circumstances(begin_seconds),
        redact_patterns=request.redact_patterns,
    )


def describe_circumstances(begin_seconds: float) -> dict[str, Any]:
    """Time, host and working directory of a run that began at `begin_seconds` (seconds since 1970)."""
    end = time.time()
    return {
        **describe_host(),
        "began": _iso_time(begin_seconds),
        "ended": _iso_time(end),
        "seconds": round(end - begin_seconds, 3),
    }


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
