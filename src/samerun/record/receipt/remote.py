"""Receipts at an address that fsspec and its packages reach (s3://bucket/runs/a.json): list, download, upload."""

from __future__ import annotations

import json
import logging
import os
import posixpath
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.supervise import new_threads_with_signals_blocked
from samerun.base.text import escape_as_one_line
from samerun.base.work_folder import temporary_work_folder
from samerun.record.receipt import receipt_file, receipt_json, step_table
from samerun.record.receipt.index import Progress
from samerun.record.receipt.receipt_summary import ReceiptSummary, make_unreadable_summary, parse_summary

RECEIPTS_PER_FETCH = 200
"""How many receipts are fetched together, and held in memory."""


def is_remote_address(folder: str) -> bool:
    """Whether this is an address for fsspec, not a local path."""
    return "://" in folder


def join_path_or_address(folder: str, name: str) -> str:
    """The path or address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_remote_address(folder) else os.path.join(folder, name)


class RemotePath(NamedTuple):
    """A path in a file system of fsspec."""

    file_system: Any
    path: str


def open_file_system(address: str) -> RemotePath:
    """The fsspec file system of an address and the path in it.

    Raises SamerunError if fsspec, or the package for this kind of address, is missing.
    """
    try:
        with new_threads_with_signals_blocked():
            import fsspec.asyn

            fsspec.asyn.get_loop()  # the thread of all asynchronous file systems
    except ImportError as error:
        raise SamerunError(
            f"{address} needs the package fsspec, which is not installed.", hint="pip install 'samerun[remote]'"
        ) from error
    try:
        found = RemotePath(*fsspec.core.url_to_fs(address))
    except ImportError as error:
        raise SamerunError(f"{address} needs a package that is not installed.", hint=f"{error}.") from error
    except Exception as error:
        raise SamerunError(
            f"{address} cannot be reached: {escape_as_one_line(str(error), 200)}.", hint="Is the address right?"
        ) from error
    return found


def list_remote_receipts(
    address: str, command_contains: str = "", newest_count: int | None = None, progress: Progress | None = None
) -> list[ReceiptSummary]:
    """Like `index.update_and_list_receipts`, but without an index: reads every receipt. Raises SamerunError."""
    system, root = open_file_system(address)
    found = []
    with translate_file_system_errors(address):
        there = {}
        for item in system.ls(root, detail=True):
            name = posixpath.basename(item["name"])
            if item["type"] == "file" and name.endswith(".json") and not name.startswith("."):
                there[item["name"]] = int(item["size"] or 0)
        small = [path for path, size in there.items() if size <= receipt_json.MAX_BYTES]
        for at in range(0, len(small), RECEIPTS_PER_FETCH):
            part = small[at : at + RECEIPTS_PER_FETCH]
            # in one call: a remote file system fetches them concurrently
            fetched = system.cat(part, on_error="return")
            found += [_summarize_fetched(path, fetched[path]) for path in part]
            if progress is not None:
                progress(len(found), len(small))
    large = set(there) - set(small)
    found += [make_unreadable_summary(posixpath.basename(path), 0, there[path], "too large") for path in large]
    chosen = sorted((one for one in found if command_contains in one.command), key=lambda one: (one.began, one.file))
    return chosen if newest_count is None else chosen[-newest_count:] if newest_count else []


def _summarize_fetched(path: str, fetched: bytes | BaseException) -> ReceiptSummary:
    name = posixpath.basename(path)
    if isinstance(fetched, BaseException):
        return make_unreadable_summary(name, 0, 0, f"cannot be read: {fetched}")
    return parse_summary(name, 0, fetched)


@contextmanager
def translate_file_system_errors(address: str, verb: str = "read") -> Iterator[None]:
    """Turn any exception of a remote file system into a SamerunError: they have no common base class."""
    try:
        yield
    except SamerunError:
        raise
    except FileNotFoundError as error:  # its text differs between file systems
        raise SamerunError(f"{address} cannot be {verb}: nothing is there.", hint="Is the address right?") from error
    except Exception as error:
        told = escape_as_one_line(str(error) or type(error).__name__, 200)
        raise SamerunError(
            f"{address} cannot be {verb}: {told}.", hint="Is the address right, and do your credentials allow it?"
        ) from error


log = logging.getLogger("samerun")

ATOMIC_STORES = {"s3", "gs", "abfs", "memory"}
"""Stores in which an object appears only after it was uploaded completely. Renaming means copying there."""


@contextmanager
def download_if_remote(path_or_address: str) -> Iterator[Path]:
    """A local path unchanged; for an address a temporary local copy of the receipt, its steps and its traces.

    Errors inside the block name the address. Raises SamerunError if the receipt cannot be downloaded.
    """
    if not is_remote_address(path_or_address):
        yield Path(path_or_address)
        return
    with temporary_work_folder() as folder:
        # keep the file name: `samerun verify` looks for a receipt of that name
        here = folder / (posixpath.basename(path_or_address) or "receipt")
        try:
            _download_receipt_and_files(path_or_address, here)
            yield here
        except SamerunError as error:
            raise SamerunError(error.message.replace(str(here), path_or_address), error.hint) from error


def _download_receipt_and_files(address: str, local_path: Path) -> None:
    system, remote_path = open_file_system(address)
    with translate_file_system_errors(address):
        size = int(system.info(remote_path)["size"] or 0)
        if size > receipt_json.MAX_BYTES:
            raise SamerunError(f"{address} has {size} bytes; a receipt has at most {receipt_json.MAX_BYTES}.")
        system.get_file(remote_path, str(local_path))
    receipt = receipt_file.read_and_verify_digest(local_path)
    # safe names: the receipt's digest has been verified
    steps, traces = (
        step_table.steps_file_path(local_path, receipt["digest"]),
        receipt_file.traces_path(local_path, receipt["digest"]),
    )
    beside = posixpath.dirname(remote_path)
    with translate_file_system_errors(address):
        if receipt["steps_in"] == "file" and system.exists(posixpath.join(beside, steps.name)):
            system.get_file(posixpath.join(beside, steps.name), str(steps))
        far = posixpath.join(beside, traces.name)
        if system.isdir(far):
            traces.mkdir()
            for item in system.ls(far, detail=False):
                if item.endswith(".trace"):
                    system.get_file(item, str(traces / posixpath.basename(item)))


def require_existing_bucket_and_check_is_folder(address: str) -> bool:
    """Whether an address is a folder for new receipts. Raises SamerunError if nothing could be written there."""
    system, there = open_file_system(address)
    with translate_file_system_errors(address, "written"):
        _require_bucket(address, system, there)
        return address.endswith("/") or bool(system.isdir(there))


@contextmanager
def upload_on_success(address: str) -> Iterator[Path]:
    """A local path for a new receipt; it is uploaded, with the files beside it, when the block ends.

    If the block raises, nothing is uploaded. If the upload fails or is interrupted, the receipt is kept on this
    machine, and the message says where. Raises SamerunError if it cannot be uploaded.
    """
    with temporary_work_folder() as folder:
        waiting = folder / "receipt"  # a folder of its own: everything in it is uploaded
        waiting.mkdir()
        here = waiting / posixpath.basename(address)
        yield here
        try:
            _upload_and_remove_earlier(here, address)
        except SamerunError as error:
            hint = f"The receipt is kept, upload it yourself: {_move_to_permanent_folder(here)}"
            raise SamerunError(error.message, hint) from error
        except BaseException:
            log.warning(
                "%s was not written; the receipt is kept, upload it yourself: %s",
                address,
                _move_to_permanent_folder(here),
            )
            raise


def _move_to_permanent_folder(local_path: Path) -> Path:
    """Move the receipt and the files beside it to a folder that is not deleted; returns the new path."""
    folder = Path(tempfile.mkdtemp(prefix="samerun-receipt-"))
    for each in list(local_path.parent.iterdir()):
        shutil.move(str(each), folder / each.name)
    return folder / local_path.name


def _upload_and_remove_earlier(local_path: Path, address: str) -> None:
    """Upload a receipt and the files beside it, the receipt last.

    The files beside it are named after its content. So an earlier receipt at the address stays complete until the
    very moment at which this one replaces it.
    """
    system, remote_path = open_file_system(address)
    beside = posixpath.dirname(remote_path)
    with translate_file_system_errors(address, "written"):
        _require_bucket(address, system, remote_path)
        system.makedirs(beside, exist_ok=True)
        earlier = _read_remote_receipt_digest_or_empty(system, remote_path)
        ours = [each for each in sorted(local_path.parent.iterdir()) if each != local_path]
        for each in ours:
            _upload_file_or_flat_folder(system, each, posixpath.join(beside, each.name))
        _upload_atomically(system, local_path, remote_path)
    if earlier:
        with suppress(Exception):  # permission to write does not imply permission to delete
            _remove_outdated_remote(system, step_table.steps_file_path(Path(remote_path), earlier), ours)
            _remove_outdated_remote(system, receipt_file.traces_path(Path(remote_path), earlier), ours)


def _read_remote_receipt_digest_or_empty(file_system: Any, remote_path: str) -> str:
    """The digest of the earlier receipt at the address; "" if there is none."""
    try:
        found = json.loads(file_system.cat_file(remote_path, end=receipt_json.MAX_BYTES))["digest"]
    except Exception:  # nothing is there, or not a receipt
        return ""
    return found if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{64}", found) else ""


def _remove_outdated_remote(file_system: Any, outdated: Path, current_files: list[Path]) -> None:
    """Remove a file or folder of an earlier receipt, unless this one uses it. No globs: names may contain a [."""
    there = outdated.as_posix()
    if outdated.name in {each.name for each in current_files} or not file_system.exists(there):
        return
    if file_system.isdir(there):
        for item in file_system.ls(there, detail=False):
            file_system.rm_file(item)
        file_system.rmdir(there)
    else:
        file_system.rm_file(there)


def _upload_atomically(file_system: Any, local_path: Path, remote_path: str) -> None:
    """Upload a receipt so that readers find either the earlier one or this one, whenever this process dies."""
    names = {file_system.protocol} if isinstance(file_system.protocol, str) else set(file_system.protocol)
    if names & ATOMIC_STORES:
        file_system.put_file(str(local_path), remote_path)
        return
    # a hidden name, which listings skip, and random, so that nobody else writes to it
    part = posixpath.join(posixpath.dirname(remote_path), f".{local_path.name}.{secrets.token_hex(16)}.part")
    try:
        file_system.put_file(str(local_path), part)
        file_system.mv(part, remote_path)
    except BaseException:
        with suppress(Exception):
            file_system.rm_file(part)
        raise


def _require_bucket(address: str, file_system: Any, remote_path: str) -> None:
    """Raises SamerunError if the bucket is missing: otherwise a mistyped one would be created."""
    top = remote_path.split("/")[0] or "/"
    if not file_system.exists(top):
        raise SamerunError(f"{address} cannot be written: there is no {top}.", hint="Is the address right?")


def _upload_file_or_flat_folder(file_system: Any, local_path: Path, remote_path: str) -> None:
    if not local_path.is_dir():
        file_system.put_file(str(local_path), remote_path)
        return
    file_system.makedirs(remote_path, exist_ok=True)
    for each in sorted(local_path.iterdir()):
        file_system.put_file(str(each), posixpath.join(remote_path, each.name))
