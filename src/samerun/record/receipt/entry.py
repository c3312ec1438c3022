"""One receipt in short: the line of an index or of `samerun log`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt import canonical


@dataclass(frozen=True)
class Entry:
    """`stamp`, `size`: of the file when it was read. `problem`: why the file is no receipt, or ""."""

    file: str
    stamp: int
    size: int
    began: str
    command: str
    ended: str
    complete: bool
    steps: int
    processes: int
    commit_: str
    torch: str
    threads: str
    host: str
    digest: str
    problem: str


def read_entry(path: Path, stamp: int, size: int) -> Entry:
    """Of a file, whatever is in it."""
    return _entry(path.name, stamp, size, lambda: canonical.load(path))


def entry_from(name: str, stamp: int, raw: bytes) -> Entry:
    """Of a text, whatever it is."""
    return _entry(name, stamp, len(raw), lambda: canonical.parse(raw, name))


def no_receipt(name: str, stamp: int, size: int, problem: str) -> Entry:
    return Entry(as_text(name), stamp, size, "", "", "", False, 0, 0, "", "", "", "", "", as_text(problem))


def _entry(name: str, stamp: int, size: int, load: Callable[[], Any]) -> Entry:
    try:
        return _told(name, stamp, size, load())
    except SamerunError as error:
        return no_receipt(name, stamp, size, error.message)
    except ValueError as error:
        return no_receipt(name, stamp, size, f"not a samerun receipt: {error}")
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        return no_receipt(name, stamp, size, f"not a samerun receipt: {error!r}")


def _told(name: str, stamp: int, size: int, receipt: dict[str, Any]) -> Entry:
    """Raises KeyError, TypeError and the like for other JSON."""
    if receipt["kind"] != "samerun receipt":
        raise ValueError("it is of another kind")
    if receipt["schema"] != canonical.SCHEMA:
        raise ValueError(f"it has schema {receipt['schema']!r}; this samerun reads schema {canonical.SCHEMA}")
    ended = receipt["ended"]
    end = f"signal {ended['signal']}" if ended["signal"] is not None else f"exit {ended['exit_code']}"
    if ended.get("exception") is not None or (ended["signal"] is None and ended["exit_code"] is None):
        end = ended.get("exception") or "block ended"
    steps = sum(int(one["steps"]["values"]["count"]) for one in receipt["processes"].values())
    return Entry(
        file=as_text(name),
        stamp=stamp,
        size=size,
        began=as_text(receipt["circumstances"].get("began", "")),
        command=" ".join(as_text(word) for word in receipt["command"]["words"]),
        ended=as_text(end),
        complete=bool(ended["complete"]),
        steps=max(0, min(steps, 1 << 60)),
        processes=len(receipt["processes"]),
        commit_=as_text(receipt["code"]["commit"] or ""),
        torch=as_text(receipt["packages"].get("torch", "")),
        threads=as_text(receipt["knobs"].get("threads", "")),
        host=as_text(receipt["circumstances"].get("host", "")),
        digest=as_text(receipt["digest"]),
        problem="",
    )


def as_text(value: Any) -> str:
    """SQLite takes no lone surrogates; the index is for looking, so text is cut."""
    return str(value)[:1000].encode("utf-8", "backslashreplace").decode()
