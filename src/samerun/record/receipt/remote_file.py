"""One receipt at an address (s3://bucket/runs/a.json): fetched to be read, sent when it was written."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.work_folder import work_folder
from samerun.record.receipt import canonical, receipt_file, side_file
from samerun.record.receipt.remote import file_system, is_address, reaching


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


def waiting_place(address: str) -> Path:
    """Where a receipt is written before it is sent: in a folder of its own."""
    return Path(tempfile.mkdtemp(prefix="samerun-receipt-")) / posixpath.basename(address)


def send(receipt: Path, address: str) -> None:
    """Send a receipt and what lies beside it, itself last. Raises SamerunError; then all of it is kept here."""
    try:
        system, there = file_system(address)
        beside = posixpath.dirname(there)
        with reaching(address, "written"):
            _check_top(address, system, there)
            system.makedirs(beside, exist_ok=True)
            for each in sorted(receipt.parent.iterdir(), key=lambda path: (path == receipt, path)):
                _put(system, each, posixpath.join(beside, each.name))
    except SamerunError as error:
        raise SamerunError(error.message, f"The receipt is kept, send it yourself: {receipt}") from error
    shutil.rmtree(receipt.parent, ignore_errors=True)


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
