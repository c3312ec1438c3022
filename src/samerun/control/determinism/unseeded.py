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
from typing import Any, Literal

from samerun.base.errors import UnseededError
from samerun.base.hooks import PostImportHooks
from samerun.base.user_code import format_source_location, is_user_code
from samerun.base.wrapping import make_wrapper_of_same_type, replace_method_in_type

OnUnseeded = Literal["ignore", "warn", "error"]
"""What to do when the program's own code asks for unseeded randomness."""
_log = logging.getLogger("samerun")
_LOOKED_THROUGH = {"random", "secrets", "uuid", __name__, "samerun.base.wrapping"}
_ENTROPY_FIX = "It gives other bits in every run: draw from a seeded generator instead, such as random.Random(SEED)."

_levels: list[OnUnseeded] = []
"""What each mode that holds asks for; the innermost counts."""
_undo: list[Callable[[], None]] = []
_wrappers: dict[tuple[int, str], tuple[Any, Any]] = {}
"""(what was wrapped, its wrapper), by owner and name: used again when the next mode begins."""


class _ThreadDepth(threading.local):
    """`inside`: in how many calls this thread is that were decided about already; what they ask is theirs."""

    inside: int = 0


_thread = _ThreadDepth()


def start_reporting_unseeded_generators_and_entropy(level: OnUnseeded) -> Callable[[], None]:
    """Watch from now on; the returned function ends it."""
    _levels.append(level)
    _install_or_remove_wrappers()
    left = False

    def leave() -> None:
        nonlocal left
        if not left:
            left = True
            _levels.remove(level)
            _install_or_remove_wrappers()

    return leave


def _install_or_remove_wrappers() -> None:
    """Install the wrappers if any mode asks for them; remove them if none does."""
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


def _call_without_reports(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the wrapped function. Unseeded randomness that it asks for itself is not reported."""
    _thread.inside += 1
    try:
        return original(*args, **kwargs)
    finally:
        _thread.inside -= 1


def _warn_or_raise_if_user_code(problem: str, fix: str) -> None:
    """Warn or raise, as the level says, if the code that asks for unseeded randomness is the program's own."""
    level = _levels[-1] if _levels else "ignore"
    frame = None if level == "ignore" or _thread.inside else _find_asking_frame_if_user_code()
    if frame is None:
        return
    file, line = frame.f_code.co_filename, frame.f_lineno
    message = f"{format_source_location(file, line)}: {problem}."
    if level == "error":
        raise UnseededError(message, fix)
    _log.warning("%s %s", message, fix)


def _find_asking_frame_if_user_code() -> FrameType | None:
    """Return the frame that asks for randomness; None if it is not of the program's own code."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module not in _LOOKED_THROUGH and not module.startswith("samerun.record."):
            return frame if is_user_code(frame.f_code.co_filename, module) else None
        frame = frame.f_back
    return None


def _wrap_while_watching(owner: Any, attribute: str, make_wrapper: Callable[[Any], Any]) -> None:
    """Replace the owner's attribute by a wrapper of it until watching ends."""
    original = getattr(owner, attribute, None)
    if original is None:
        return
    known = _wrappers.get((id(owner), attribute))
    replacement = (
        known[1]
        if known is not None and known[0] is original
        else make_wrapper_of_same_type(original, make_wrapper(original))
    )
    _wrappers[id(owner), attribute] = original, replacement
    setattr(owner, attribute, replacement)

    def undo() -> None:
        if getattr(owner, attribute, None) is replacement:
            setattr(owner, attribute, original)

    _undo.append(undo)


def _make_entropy_wrapper_factory(function_name: str) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def reading(*args: Any, **kwargs: Any) -> Any:
            _warn_or_raise_if_user_code(f"{function_name}() draws from the operating system's entropy", _ENTROPY_FIX)
            return _call_without_reports(original, *args, **kwargs)

        return reading

    return make


def _install_os_entropy_watch(os: ModuleType) -> None:
    _wrap_while_watching(os, "urandom", _make_entropy_wrapper_factory("os.urandom"))
    _wrap_while_watching(os, "getrandom", _make_entropy_wrapper_factory("os.getrandom"))


def _watch_argless_seed_and_system_random(random: ModuleType) -> None:
    """`SystemRandom`, and with it `secrets`, reads through a name of its own."""
    _wrap_while_watching(random, "_urandom", _make_entropy_wrapper_factory("random.SystemRandom"))

    def own_seed(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: int = 2) -> None:
            if a is None:
                _warn_or_raise_if_user_code("random.Random() has no seed", "Pass a seed: random.Random(SEED).")
            _call_without_reports(original, self, a, version)

        return seed

    def global_seed(original: Any) -> Any:
        def seed(a: Any = None, version: int = 2) -> None:
            if a is None:
                _warn_or_raise_if_user_code("random.seed() has no seed", "Pass a seed: random.seed(SEED).")
            _call_without_reports(original, a, version)

        return seed

    _wrap_while_watching(random.Random, "seed", own_seed)
    _wrap_while_watching(random, "seed", global_seed)


def _install_uuid4_watch(uuid: ModuleType) -> None:
    fix = "It gives another value in every run: uuid.uuid5(NAMESPACE, NAME) makes one from a name."

    def make(original: Any) -> Any:
        def uuid4() -> Any:
            _warn_or_raise_if_user_code("uuid.uuid4() draws from the operating system's entropy", fix)
            return _call_without_reports(original)

        return uuid4

    _wrap_while_watching(uuid, "uuid4", make)


def _install_unseeded_numpy_watch(numpy_random: Any) -> None:
    """Every NumPy generator that is made without a seed asks `bit_generator.randbits` for one."""

    def from_system(original: Any) -> Any:
        def randbits(bits: int) -> Any:
            _warn_or_raise_if_user_code(
                "a NumPy generator has no seed",
                "Pass a seed where it is made: numpy.random.default_rng(SEED), PCG64(SEED), RandomState(SEED).",
            )
            return _call_without_reports(original, bits)

        return randbits

    kind = numpy_random.RandomState
    original = kind.__init__

    def making(self: Any, *args: Any, **kwargs: Any) -> None:
        # RandomState(3) first makes a generator without a seed, then seeds it.
        if args[:1] in ((), (None,)) and kwargs.get("seed") is None:
            original(self, *args, **kwargs)
        else:
            _call_without_reports(original, self, *args, **kwargs)

    bit_generator = sys.modules.get("numpy.random.bit_generator")
    if bit_generator is not None:
        _wrap_while_watching(bit_generator, "randbits", from_system)
        _undo.append(replace_method_in_type(kind, "__init__", making))


def _install_torch_seed_watch(torch: Any) -> None:
    def make(original: Any) -> Any:
        def seed() -> Any:
            _warn_or_raise_if_user_code(
                "torch.seed() takes a seed from the system", "Pass a seed: torch.manual_seed(SEED)."
            )
            return _call_without_reports(original)

        return seed

    _wrap_while_watching(torch, "seed", make)
    _wrap_while_watching(torch.random, "seed", make)


_INSTALLERS: dict[str, Callable[[Any], None]] = {
    "os": _install_os_entropy_watch,
    "random": _watch_argless_seed_and_system_random,
    "uuid": _install_uuid4_watch,
    "numpy.random": _install_unseeded_numpy_watch,
    "torch": _install_torch_seed_watch,
}


def _wrap_imported_module_if_watching(module: ModuleType) -> None:
    """Wrap what a module that was imported just now has, if watching is on."""
    if _undo:
        _INSTALLERS[module.__name__](module)


_import_hook = PostImportHooks()
for _name in ("uuid", "numpy.random", "torch"):
    _import_hook.call_now_or_after_import(_name, _wrap_imported_module_if_watching)
