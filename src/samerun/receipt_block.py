"""`samerun.receipt`. A face: brings the recording of this process and the facts about it together."""

from __future__ import annotations

import json
import os
import posixpath
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.hooks import hide_from_recorder
from samerun.base.user_code import relative_to_working_folder
from samerun.control.rng.isolation import isolate_rng
from samerun.record.config import ROLE_VARIABLE, WatchConfig
from samerun.record.watching import start
from samerun.record.watching.recorder import Recorder

FOLDER_VARIABLE = "SAMERUN_RECEIPT_FOLDER"
"""Overrides the folder of receipts: `samerun verify` must not overwrite the receipt that it verifies."""


@contextmanager
def receipt(
    path: str | os.PathLike[str], *, key: str | os.PathLike[str] | None = None, redact: Sequence[str] = ()
) -> Iterator[None]:
    """Record what this process does inside the block, and write its receipt to `path` at the end.

    The receipt is written also when the block ends with an exception, and says so. It replaces an earlier one
    as a whole; a process that is killed leaves the earlier one. Of several ranks (RANK in the environment) rank
    0 writes to `path` and each other one beside it, `run.rank1.json`: one receipt of the whole job is made by
    `samerun run --receipt FILE -- torchrun ...`.

    path: a file, or an address that fsspec knows ("s3://bucket/run.json"): the receipt is then sent there when
    the block has ended. What cannot be sent is kept on this machine, and the error says where.
    key: a file with an Ed25519 private key (PEM) that signs it. Raises SamerunError if it cannot be written.
    redact: patterns of names of variables and options whose values are left out, beside those that look secret;
    also "host" and "folder".

        with samerun.receipt("run.json"):
            train()
    """
    if isinstance(redact, str):
        raise SamerunError(f"receipt(redact={redact!r}): a list of patterns is wanted.", hint=f"Try [{redact!r}].")
    with hide_from_recorder():
        target = _resolve_writable_target(path)
    from samerun.record.receipt.code_version import read_code_version

    with hide_from_recorder():
        code_version = read_code_version(Path(sys.argv[0] if sys.argv and sys.argv[0] else ".").resolve().parent)
    began_at, pid = time.time(), os.getpid()
    with tempfile.TemporaryDirectory(prefix="samerun-", ignore_cleanup_errors=True) as folder:
        recording = _start_or_join_recording(folder)
        with hide_from_recorder():
            from samerun.record.watching.start import digest_initial_models_and_generators

            initial_state = digest_initial_models_and_generators(recording.recorder)
        failed: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            if os.getpid() == pid:  # a forked child leaves the block as well
                recorded = recording.stop_and_read()
                with hide_from_recorder():
                    signer = Path(key) if key is not None else None
                    _write_or_upload_receipt(
                        target, recorded, code_version, began_at, initial_state, failed, signer, tuple(redact)
                    )


class RecordedSections(NamedTuple):
    """What a receipt says about each process, and what went wrong while it was recorded."""

    sections: list[Any]
    problems: list[str]


class _OwnRecording:
    """Record for this block alone: the process is not recorded otherwise."""

    def __init__(self, folder: str, recorder: Recorder | None) -> None:
        self.folder = folder
        self.role = os.environ.pop(ROLE_VARIABLE, None)
        config = WatchConfig(folder=folder, depth="steps", receipt=True)
        if recorder is None:
            started = start.start(config)
            assert started is not None
            self.recorder = started
        else:
            self.recorder = recorder
            recorder.restart_after_finish(config)

    def stop_and_read(self) -> RecordedSections:
        from samerun.record.receipt.assemble import build_sections_of_traces

        self.recorder.finish()
        os.environ.pop(ROLE_VARIABLE, None)
        if self.role is not None:
            os.environ[ROLE_VARIABLE] = self.role
        return RecordedSections(*build_sections_of_traces(Path(self.folder)))


class _TraceSlice:
    """The process is being recorded already: use the part of its trace that belongs to the block.

    What the recorder has seen before the block, models and files, is set aside while it lasts, so that the receipt is
    the same as that of a block that is recorded alone.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.first = self._flush_and_count_events()
        self.earlier = [dict(one) for one in recorder.cleared_on_restart]
        for one in recorder.cleared_on_restart:
            one.clear()

    def _flush_and_count_events(self) -> int:
        """Return how many events the trace has now."""
        writer = self.recorder.writer or self.recorder.open_writer()
        if writer is None:
            return 0
        writer.flush()
        return writer.count

    def stop_and_read(self) -> RecordedSections:
        from dataclasses import replace

        from samerun.record.receipt.assemble import build_process_section
        from samerun.record.trace.reader import Trace

        for call in list(self.recorder.end_callbacks):
            call()
        # Not strict: where torch was imported later, there were fewer of these before.
        for one, earlier in zip(self.recorder.cleared_on_restart, self.earlier, strict=False):
            both = {**earlier, **one}
            one.clear()
            one.update(both)
        last, writer = self._flush_and_count_events(), self.recorder.writer
        if writer is None:
            return RecordedSections([], [f"the recording had stopped: {self.recorder.failure}"])
        section = build_process_section(Trace(Path(writer.path)), self.first, last)
        return RecordedSections([replace(section, complete=True)], [])


def _start_or_join_recording(folder: str) -> _OwnRecording | _TraceSlice:
    """Record this process, or, if it is being recorded already, mark where the block begins in its trace."""
    recorder = start.current_recorder
    if recorder is not None and not recorder.stopped:
        return _TraceSlice(recorder)
    return _OwnRecording(folder, recorder)


def _resolve_writable_target(path: str | os.PathLike[str]) -> Path | str:
    """Return the file or address that the receipt goes to. Raises SamerunError if it could not be written later."""
    from samerun.record.receipt import remote
    from samerun.record.receipt.remote import is_remote_address

    text, other = os.fspath(path), os.environ.get(FOLDER_VARIABLE)
    if not is_remote_address(text):
        return _add_rank_and_require_writable(Path(text) if not other else Path(other) / Path(text).name)
    if other:
        return _add_rank_and_require_writable(Path(other) / posixpath.basename(text))
    with isolate_rng():  # the packages may draw random numbers
        if not posixpath.basename(text) or remote.require_existing_bucket_and_check_is_folder(text):
            raise SamerunError(f"receipt({text!r}): that is a folder.", hint="Name a file, such as run.json.")
    return posixpath.join(posixpath.dirname(text), _add_rank_to_file_name(posixpath.basename(text)))


def _add_rank_to_file_name(file_name: str) -> str:
    """Return run.rank1.json for run.json on rank 1; rank 0 keeps the name."""
    rank = os.environ.get("RANK", "0")
    stem, suffix = posixpath.splitext(file_name)
    return file_name if rank in ("", "0") else f"{stem}.rank{rank}{suffix}"


def _add_rank_and_require_writable(path: Path) -> Path:
    """Return the absolute path of this rank's receipt. Raises SamerunError if it could not be written."""
    from samerun.base.files import raise_if_existing_non_regular_file, require_output_safe_to_replace

    path = path.with_name(_add_rank_to_file_name(path.name)) if path.name else path
    if path.is_dir():
        raise SamerunError(f"receipt({str(path)!r}): that is a folder.", hint="Name a file, such as run.json.")
    raise_if_existing_non_regular_file(path)
    require_output_safe_to_replace("receipt:", str(path))
    return path.absolute()


def _write_or_upload_receipt(
    target: Path | str, recorded: RecordedSections, code_version: dict[str, Any], began_at: float,
    initial_state: dict[str, Any], error: BaseException | None, signing_key_path: Path | None,
    redact_patterns: tuple[str, ...],
) -> None:  # fmt: skip
    from samerun.control.determinism.survey import collect_process_facts
    from samerun.record.receipt import receipt_file, remote
    from samerun.record.receipt.assemble import assemble_receipt
    from samerun.record.receipt.watched_run import describe_circumstances

    now = collect_process_facts("end of samerun.receipt")
    ended: dict[str, Any] = {"exit_code": None, "signal": None}
    ended["exception"] = None if error is None else type(error).__name__
    script = relative_to_working_folder(sys.argv[0]) if sys.argv and sys.argv[0] else "-"
    made = assemble_receipt(
        version=sys.modules["samerun"].__version__,  # an import would be circular: samerun imports this module
        command={"form": "code", "words": [script, *sys.argv[1:]]},
        held_settings=_read_deterministic_run_settings(),
        ending=ended,
        code=code_version,
        sections=recorded.sections,
        read_errors=recorded.problems,
        facts={os.getpid(): now},
        fallback_facts=now,
        circumstances={**describe_circumstances(began_at), "start": initial_state},
        redact_patterns=redact_patterns,
    )
    if signing_key_path is not None:
        made.receipt["signature"] = receipt_file.sign_digest(made.receipt["digest"], signing_key_path)
    if isinstance(target, Path):
        receipt_file.write(target, made)
        return
    with isolate_rng(), remote.upload_on_success(target) as file:
        receipt_file.write(file, made)


def _read_deterministic_run_settings() -> dict[str, Any] | None:
    """Return the settings with which `samerun run` holds this process; None if it does not."""
    try:
        asked = json.loads(os.environ["SAMERUN_HOLD"])
    except (KeyError, ValueError):
        return None
    return asked if isinstance(asked, dict) else None
