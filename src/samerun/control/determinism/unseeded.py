"""Strict mode: notice generators without a seed and draws from the system's entropy in the program's own code.

The rule: it counts when the code that asks is the program's own, not Python's and not an installed package's.
So temporary file names, authentication keys, TLS and the identifiers that libraries make for themselves go on
as ever. `random`, `secrets` and `uuid` are looked through, because they only pass the question on: what counts
is who called them.

Not seen: a function that the program had taken by name before (`from os import urandom`), and what C code
draws by itself (`torch.Generator().seed()`).
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from samerun.base.errors import UnseededError
from samerun.base.hooks import PostImportHooks
from samerun.base.user_code import format_source_location, is_user_code
from samerun.base.wrapping import replace_method_in_type, wrap_like

_log = logging.getLogger("samerun")
_LOOKED_THROUGH = {"random", "secrets", "uuid", __name__, "samerun.base.wrapping"}
_ENTROPY_FIX = "It gives other bits in every run: draw from a seeded generator instead, such as random.Random(SEED)."

_levels: list[str] = []
"""What each mode that holds asks for; the innermost counts."""
_undo: list[Callable[[], None]] = []
_wrappers: dict[tuple[int, str], tuple[Any, Any]] = {}
"""(what was wrapped, its wrapper), by owner and name: used again when the next mode begins."""


class _ThreadDepth(threading.local):
    """`inside`: in how many calls this thread is that were decided about already; what they ask is theirs."""

    inside: int = 0


_thread = _ThreadDepth()


def watch_unseeded(level: str) -> Callable[[], None]:
    """Watch from now on; what is returned ends it. `level`: "ignore", "warn" or "error"."""
    _levels.append(level)
    _update_watching()
    left = False

    def leave() -> None:
        nonlocal left
        if not left:
            left = True
            _levels.remove(level)
            _update_watching()

    return leave


def _update_watching() -> None:
    """Have the wrappers in place while any mode asks for them."""
    watching = any(level != "ignore" for level in _levels)
    if watching and not _undo:
        _import_hook.install()
        for name, install in _INSTALLERS.items():
            module = sys.modules.get(name)
            if module is not None:
                install(module)
    elif not watching:
        while _undo:
            _undo.pop()()


def _call_unwatched(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Call what was wrapped; what it asks for on the way was decided already."""
    _thread.inside += 1
    try:
        return original(*args, **kwargs)
    finally:
        _thread.inside -= 1


def _report_unseeded(what: str, fix: str) -> None:
    """Someone asks for unseeded randomness: say so if it is the program's own code."""
    level = _levels[-1] if _levels else "ignore"
    frame = None if level == "ignore" or _thread.inside else _find_user_frame()
    if frame is None:
        return
    file, line = frame.f_code.co_filename, frame.f_lineno
    message = f"{format_source_location(file, line)}: {what}."
    if level == "error":
        raise UnseededError(message, fix)
    _log.warning("%s %s", message, fix)


def _find_user_frame() -> FrameType | None:
    """The frame that asks, if it is the program's own."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module not in _LOOKED_THROUGH and not module.startswith("samerun.record."):
            return frame if is_user_code(frame.f_code.co_filename, module) else None
        frame = frame.f_back
    return None


def _wrap_attribute(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name` until watching ends."""
    original = getattr(owner, name, None)
    if original is None:
        return
    known = _wrappers.get((id(owner), name))
    replacement = known[1] if known is not None and known[0] is original else wrap_like(original, make(original))
    _wrappers[id(owner), name] = original, replacement
    setattr(owner, name, replacement)

    def undo() -> None:
        if getattr(owner, name, None) is replacement:
            setattr(owner, name, original)

    _undo.append(undo)


def _wrap_entropy_source(called: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def reading(*args: Any, **kwargs: Any) -> Any:
            _report_unseeded(f"{called}() draws from the operating system's entropy", _ENTROPY_FIX)
            return _call_unwatched(original, *args, **kwargs)

        return reading

    return make


def _watch_os(os: Any) -> None:
    _wrap_attribute(os, "urandom", _wrap_entropy_source("os.urandom"))
    _wrap_attribute(os, "getrandom", _wrap_entropy_source("os.getrandom"))


def _watch_random(random: Any) -> None:
    """`SystemRandom`, and with it `secrets`, reads through a name of its own."""
    _wrap_attribute(random, "_urandom", _wrap_entropy_source("random.SystemRandom"))

    def own_seed(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: int = 2) -> None:
            if a is None:
                _report_unseeded("random.Random() has no seed", "Pass a seed: random.Random(SEED).")
            _call_unwatched(original, self, a, version)

        return seed

    def global_seed(original: Any) -> Any:
        def seed(a: Any = None, version: int = 2) -> None:
            if a is None:
                _report_unseeded("random.seed() has no seed", "Pass a seed: random.seed(SEED).")
            _call_unwatched(original, a, version)

        return seed

    _wrap_attribute(random.Random, "seed", own_seed)
    _wrap_attribute(random, "seed", global_seed)


def _watch_uuid(uuid: Any) -> None:
    fix = "It gives another value in every run: uuid.uuid5(NAMESPACE, NAME) makes one from a name."

    def make(original: Any) -> Any:
        def uuid4() -> Any:
            _report_unseeded("uuid.uuid4() draws from the operating system's entropy", fix)
            return _call_unwatched(original)

        return uuid4

    _wrap_attribute(uuid, "uuid4", make)


def _watch_numpy(random: Any) -> None:
    """Every NumPy generator that is made without a seed asks `bit_generator.randbits` for one."""

    def from_system(original: Any) -> Any:
        def randbits(bits: int) -> Any:
            _report_unseeded(
                "a NumPy generator has no seed",
                "Pass a seed where it is made: numpy.random.default_rng(SEED), PCG64(SEED), RandomState(SEED).",
            )
            return _call_unwatched(original, bits)

        return randbits

    kind = random.RandomState
    original = kind.__init__

    def making(self: Any, *args: Any, **kwargs: Any) -> None:
        # RandomState(3) first makes a generator without a seed, then seeds it.
        if args[:1] in ((), (None,)) and kwargs.get("seed") is None:
            original(self, *args, **kwargs)
        else:
            _call_unwatched(original, self, *args, **kwargs)

    bit_generator = sys.modules.get("numpy.random.bit_generator")
    if bit_generator is not None:
        _wrap_attribute(bit_generator, "randbits", from_system)
        _undo.append(replace_method_in_type(kind, "__init__", making))


def _watch_torch(torch: Any) -> None:
    def make(original: Any) -> Any:
        def seed() -> Any:
            _report_unseeded("torch.seed() takes a seed from the system", "Pass a seed: torch.manual_seed(SEED).")
            return _call_unwatched(original)

        return seed

    _wrap_attribute(torch, "seed", make)
    _wrap_attribute(torch.random, "seed", make)


_INSTALLERS: dict[str, Callable[[Any], None]] = {
    "os": _watch_os,
    "random": _watch_random,
    "uuid": _watch_uuid,
    "numpy.random": _watch_numpy,
    "torch": _watch_torch,
}


def _watch_arrived_module(module: ModuleType) -> None:
    if _undo:
        _INSTALLERS[module.__name__](module)


_import_hook = PostImportHooks()
for _name in ("uuid", "numpy.random", "torch"):
    _import_hook.add(_name, _watch_arrived_module)
