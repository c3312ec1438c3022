"""One receipt at an address (s3://bucket/runs/a.json): fetched to be read, sent when it was written."""

from __future__ import annotations

import json
import logging
import posixpath
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.work_folder import work_folder
from samerun.record.receipt import canonical, receipt_file, side_file
from samerun.record.receipt.remote import file_system, is_address, reaching

log = logging.getLogger("samerun")

WHOLE_OR_NOT_AT_ALL = {"s3", "gs", "abfs", "memory"}
"""Stores that show an object when all of it was sent. To rename one there is to copy it, and to delete the other."""


@contextmanager
def at_hand(text: str) -> Iterator[Path]:
    """A path as it is; what stands at an address as a file, with what lies beside it, for as long as the block lasts.

    Errors of the block name the address. Raises SamerunError where nothing can be fetched.
    """
    if not is_address(text):
        yield Path(text)
        return
    with work_folder() as folder:
        # the address's own last part: `samerun verify` looks for a receipt of that name
        here = folder / (posixpath.basename(text) or "receipt")
        try:
            _fetch(text, here)
            yield here
        except SamerunError as error:
            raise SamerunError(error.message.replace(str(here), text), error.hint) from error


def _fetch(address: str, here: Path) -> None:
    system, there = file_system(address)
    with reaching(address):
        size = int(system.info(there)["size"] or 0)
        if size > canonical.LARGEST_BYTES:
            raise SamerunError(f"{address} has {size} bytes; a receipt has at most {canonical.LARGEST_BYTES}.")
        system.get_file(there, str(here))
    receipt = receipt_file.read(here)
    # names of our own making: the receipt's digest is known to be right
    steps, traces = side_file.path_of(here, receipt["digest"]), receipt_file.traces_of(here, receipt["digest"])
    beside = posixpath.dirname(there)
    with reaching(address):
        if receipt["steps_in"] == "file" and system.exists(posixpath.join(beside, steps.name)):
            system.get_file(posixpath.join(beside, steps.name), str(steps))
        far = posixpath.join(beside, traces.name)
        if system.isdir(far):
            traces.mkdir()
            for item in system.ls(far, detail=False):
                if item.endswith(".trace"):
                    system.get_file(item, str(traces / posixpath.basename(item)))


def is_folder(address: str) -> bool:
    """Whether new receipts are meant to go into it. Raises SamerunError where nothing could be written."""
    system, there = file_system(address)
    with reaching(address, "written"):
        _check_top(address, system, there)
        return address.endswith("/") or bool(system.isdir(there))


@contextmanager
def sent(address: str) -> Iterator[Path]:
    """Where a receipt is to be written, to be sent with what lies beside it when the block has ended.

    A block that ends with an exception sends nothing. What cannot be sent, or was interrupted while it was, is kept
    on this machine, and said where. Raises SamerunError where it cannot be sent.
    """
    with work_folder() as folder:
        waiting = folder / "receipt"  # a folder of its own: what else is here is not to be sent
        waiting.mkdir()
        here = waiting / posixpath.basename(address)
        yield here
        try:
            _send(here, address)
        except SamerunError as error:
            raise SamerunError(error.message, f"The receipt is kept, send it yourself: {_kept(here)}") from error
        except BaseException:
            log.warning("%s was not written; the receipt is kept, send it yourself: %s", address, _kept(here))
            raise


def _kept(receipt: Path) -> Path:
    """The receipt and what lies beside it, in a folder that nobody removes."""
    folder = Path(tempfile.mkdtemp(prefix="samerun-receipt-"))
    for each in list(receipt.parent.iterdir()):
        shutil.move(str(each), folder / each.name)
    return folder / receipt.name


def _send(receipt: Path, address: str) -> None:
    """What lies beside the receipt is named after its content, so the earlier receipt there stays whole until this
    one, which goes last, takes its place."""
    system, there = file_system(address)
    beside = posixpath.dirname(there)
    with reaching(address, "written"):
        _check_top(address, system, there)
        system.makedirs(beside, exist_ok=True)
        earlier = _digest_at(system, there)
        ours = [each for each in sorted(receipt.parent.iterdir()) if each != receipt]
        for each in ours:
            _put(system, each, posixpath.join(beside, each.name))
        _put_whole(system, receipt, there)
    if earlier:
        with suppress(Exception):  # who may write need not be allowed to delete
            _remove(system, side_file.path_of(Path(there), earlier), ours)
            _remove(system, receipt_file.traces_of(Path(there), earlier), ours)


def _digest_at(system: Any, there: str) -> str:
    """Of the earlier receipt at the address; "" if there is none."""
    try:
        found = json.loads(system.cat_file(there, end=canonical.LARGEST_BYTES))["digest"]
    except Exception:  # nothing there, or no receipt
        return ""
    return found if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{64}", found) else ""


def _remove(system: Any, beside: Path, kept: list[Path]) -> None:
    """What lay beside an earlier receipt, unless it is that of this one. One by one: a [ in a name is a [."""
    there = beside.as_posix()
    if beside.name in {each.name for each in kept} or not system.exists(there):
        return
    if system.isdir(there):
        for item in system.ls(there, detail=False):
            system.rm_file(item)
        system.rmdir(there)
    else:
        system.rm_file(there)


def _put_whole(system: Any, here: Path, there: str) -> None:
    """Whoever reads there, whenever this process dies, finds the earlier receipt or this one."""
    names = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
    if names & WHOLE_OR_NOT_AT_ALL:
        system.put_file(str(here), there)
        return
    # log does not list it; nobody else writes under this name
    part = posixpath.join(posixpath.dirname(there), f".{here.name}.{secrets.token_hex(16)}.part")
    try:
        system.put_file(str(here), part)
        system.mv(part, there)
    except BaseException:
        with suppress(Exception):
            system.rm_file(part)
        raise


def _check_top(address: str, system: Any, there: str) -> None:
    """A bucket whose name is mistyped would be made with the folders below it."""
    top = there.split("/")[0] or "/"
    if not system.exists(top):
        raise SamerunError(f"{address} cannot be written: there is no {top}.", hint="Is the address right?")


def _put(system: Any, here: Path, there: str) -> None:
    if not here.is_dir():
        system.put_file(str(here), there)
        return
    system.makedirs(there, exist_ok=True)
    for each in sorted(here.iterdir()):
        system.put_file(str(each), posixpath.join(there, each.name))
