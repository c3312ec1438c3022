"""Follow the user's own lines: after each, which of its variables has a new value, and what functions return.

A separate, slow way of watching, used only to find the line where two runs part before any operator
does: two runs that differ in one known thing (the hash seed, say) are followed, and the first variable
that differs names the line. Sets are compared as sets: it is the iteration over one that matters.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import deque
from types import CodeType, FrameType
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.config import CONFIG_VARIABLE
from samerun.record.digests.digest import digest
from samerun.record.digests.state_digests import dict_items_bypassing_overrides
from samerun.record.trace import format as f
from samerun.record.watching import native_entropy, stack_frames
from samerun.record.watching.recorder import Recorder

NATIVE_DRAW = "<random bytes of the system>"
"""The name of an event that is no variable: native code drew such bytes on the line (see native_entropy)."""
MOST_HITS = 64
"""A line is followed at most so many times."""
MAX_DEPTH, MAX_ITEMS = 5, 2000
LOOP_NAMES = 3
"""Code that has met so many names of environment variables goes through all of them."""
MODULES_WITH_ADDRESSES = ("builtins", "ctypes")
"""Objects of types from here hold addresses (a library's handle), and are compared by type."""


ENVIRONMENT = b"environment".ljust(16, b"\0")
"""Stands for the environment, or for what a loop over all of it holds: samerun itself changes some of it from run to
run, whatever is varied. What becomes of a variable that the program asks for by name is compared."""


def is_environment_copy(value: Any) -> bool:
    """Whether a value is the process's environment, or all of its values in another container."""
    environ = os.environ
    if type(value) is type(environ):
        return True
    if not isinstance(value, (dict, list, tuple)) or not len(environ) // 2 <= len(value) <= 4 * len(environ):
        return False
    own = CONFIG_VARIABLE, environ.get(CONFIG_VARIABLE)
    for each in value:
        first = each[0] if isinstance(each, (tuple, list)) and each else each
        if isinstance(first, str) and (first in own or first.upper().startswith(CONFIG_VARIABLE)):
            return True
    return False


class EnvironmentLoops:
    """Finds variables that go through the whole environment: a name and its value, or a pair of both."""

    def __init__(self) -> None:
        self.names: dict[int, set[str]] = {}
        """Code -> names of environment variables that its variables have held."""

    def find_variables(self, code: CodeType, values: dict[str, Any]) -> set[str]:
        """The names of those of a frame's variables that now hold some value of the environment in such a loop."""
        texts = {name: value for name, value in values.items() if type(value) is str}
        pairs = {name: value for name, value in values.items() if type(value) is tuple and len(value) == 2}
        named = {value for value in texts.values() if value in os.environ}
        named |= {first for first, _ in pairs.values() if type(first) is str and first in os.environ}
        seen = self.names.setdefault(id(code), set())
        seen |= named
        if not named or len(seen) < LOOP_NAMES:
            return set()
        held = {os.environ[name] for name in named}
        return {name for name, value in texts.items() if value in held} | {
            name for name, (_, second) in pairs.items() if second in held
        }


def digest_variable(value: Any, depth: int = 0) -> bytes:
    """Digest of a plain value: order counts in lists and dicts, not in sets; addresses never count."""
    if is_environment_copy(value):
        return ENVIRONMENT
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return xxh3_128_digest(repr(value).encode("utf-8", "surrogatepass"))
    if depth >= MAX_DEPTH:
        return b"deep"
    if isinstance(value, (list, tuple, deque)):
        items = [digest_variable(v, depth + 1) for _, v in zip(range(MAX_ITEMS), value, strict=False)]
        return xxh3_128_digest(f"list{len(value)}".encode() + b"".join(items))
    if isinstance(value, dict):
        items = [
            digest_variable(k, depth + 1) + digest_variable(v, depth + 1)
            for _, (k, v) in zip(range(MAX_ITEMS), dict_items_bypassing_overrides(value), strict=False)
        ]
        return xxh3_128_digest(f"dict{len(value)}".encode() + b"".join(items))
    if isinstance(value, (set, frozenset)):
        members = sorted(digest_variable(v, depth + 1) for v in value) if len(value) <= MAX_ITEMS else []
        return xxh3_128_digest(f"set{len(value)}".encode() + b"".join(members))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return digest(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
        return xxh3_128_digest(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and not isinstance(value, type) and type(value).__module__ not in MODULES_WITH_ADDRESSES:
        return xxh3_128_digest(type(value).__qualname__.encode() + digest_variable(dict(held), depth + 1))
    return xxh3_128_digest(type(value).__qualname__.encode())


def _is_function_head_called_by_user(frame: FrameType, caller: FrameType, line: int) -> bool:
    """Whether `line` is the head of a function, before its first statement, and code of the user's called it."""
    code = frame.f_code
    if line != code.co_firstlineno or code.co_name == "<module>":
        return False
    return not code.co_flags & inspect.CO_GENERATOR and stack_frames.classify_code(caller.f_code) == stack_frames.USER


class LineFollower:
    """A trace function for `sys.settrace`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.hits: dict[tuple[int, int], int] = {}
        self.native_draws = native_entropy.make_native_draw_counter()
        self.drawn = 0
        self.environment_loops = EnvironmentLoops()

    def trace_this_thread(self) -> None:
        self.native_code_drew_since_last_call()
        sys.settrace(self.trace_call)

    def trace_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "call" or stack_frames.classify_code(frame.f_code) != stack_frames.USER:
            return None
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "sitecustomize":
            return None
        last = frame.f_lineno
        known: dict[str, bytes] = {}

        def follow(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event in ("line", "return"):
                self.record_changed_variables(frame, last, known)
                last = frame.f_lineno
            if event == "return" and frame.f_code.co_name != "<module>":
                self.record_return_value(frame, argument)
            return follow

        return follow

    def record_changed_variables(self, frame: FrameType, line: int, known_digests: dict[str, bytes]) -> None:
        """Record the variables whose value changed since the last line."""
        recorder = self.recorder
        if recorder.stopped or recorder.thread.inside_samerun:
            return
        drew = self.native_code_drew_since_last_call()
        key = (id(frame.f_code), line)
        hits = self.hits[key] = self.hits.get(key, 0) + 1
        if hits > MOST_HITS:
            return
        recorder.thread.inside_samerun += 1
        changed: list[tuple[str, bytes]] = []
        try:
            values = dict(frame.f_locals)
            of_environment = self.environment_loops.find_variables(frame.f_code, values)
            for name, value in values.items():
                if name.startswith("__") or type(value).__name__ in ("module", "function", "type"):
                    continue
                try:
                    found = ENVIRONMENT if name in of_environment else digest_variable(value)
                except Exception:
                    continue
                if known_digests.get(name) != found:
                    known_digests[name] = found
                    changed.append((name, found))
        finally:
            recorder.thread.inside_samerun -= 1
        writer = recorder.writer or recorder.open_writer()
        if writer is None:
            return
        location_id = writer.intern_location(frame.f_code.co_filename, line, "")
        if drew:
            recorder.emit(f.LINE, name=NATIVE_DRAW, location_id=location_id, phase=f.HOST)
        caller = frame.f_back
        if caller is not None and _is_function_head_called_by_user(frame, caller, line):
            # What a function is called with gets its value where it is called.
            location_id = writer.intern_location(caller.f_code.co_filename, caller.f_lineno, "")
            changed = [(f"{frame.f_code.co_name}({name})", found) for name, found in changed]
        for name, found in changed:
            recorder.emit(f.LINE, name=name, location_id=location_id, outputs=found.ljust(16, b"\0")[:16], phase=f.HOST)

    def record_return_value(self, frame: FrameType, value: Any) -> None:
        """Record what a function returns or yields: a value that no variable may ever have held."""
        recorder, line = self.recorder, frame.f_lineno
        if value is None or recorder.stopped or recorder.thread.inside_samerun:
            return
        key = (id(frame.f_code), -line)
        hits = self.hits[key] = self.hits.get(key, 0) + 1
        if hits > MOST_HITS:
            return
        recorder.thread.inside_samerun += 1
        try:
            looped = self.environment_loops.find_variables(frame.f_code, {"": value})
            found = ENVIRONMENT if looped else digest_variable(value)
        except Exception:
            return
        finally:
            recorder.thread.inside_samerun -= 1
        writer = recorder.writer or recorder.open_writer()
        if writer is not None:
            location_id = writer.intern_location(frame.f_code.co_filename, line, "")
            name = f"{frame.f_code.co_name}()"
            recorder.emit(f.LINE, name=name, location_id=location_id, outputs=found.ljust(16, b"\0")[:16], phase=f.HOST)

    def native_code_drew_since_last_call(self) -> bool:
        """True if native code drew random bytes of the system since the last call."""
        if self.native_draws is None:
            return False
        before, self.drawn = self.drawn, self.native_draws()
        return self.drawn != before
