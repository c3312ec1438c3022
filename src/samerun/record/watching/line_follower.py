"""Follow the user's own lines: after each, which of its variables has a new value, and what functions return.

A separate, slow way of watching, used only to find the line where two runs part before any operator
does: two runs that differ in one known thing (the hash seed, say) are followed, and the first variable
that differs names the line. Sets are compared as sets: it is the iteration over one that matters.
"""

from __future__ import annotations

import inspect
import os
import sys
from types import CodeType, FrameType
from typing import Any

from samerun.record.config import to_original_path
from samerun.record.digests.variable_digests import ENVIRONMENT, digest_variable
from samerun.record.trace import format as f
from samerun.record.watching import native_entropy, stack_frames
from samerun.record.watching.held_variables import VariableHolder
from samerun.record.watching.recorder import Recorder

NATIVE_DRAW = "<random bytes of the system>"
"""The name of an event that is no variable: native code drew such bytes on the line (see native_entropy)."""
MOST_HITS = 64
"""A line is followed at most so many times."""
LOOP_NAMES = 3
"""Code that has met so many names of environment variables goes through all of them."""


class EnvironmentLoops:
    """Finds variables that go through the whole environment: a name and its value, or a pair of both."""

    def __init__(self) -> None:
        self.names: dict[int, set[str]] = {}
        """Code -> names of environment variables that its variables have held."""

    def find_locals_holding_values_of_os_environ_loop(self, code: CodeType, values: dict[str, Any]) -> set[str]:
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


def _locate_assignment_or_call_and_callee(frame: FrameType, line: int) -> tuple[tuple[str, int], str]:
    """Where the values of a frame's variables come from after a line, and the function whose parameters they are.

    What a function is called with gets its value where it is called. "" for the function on every other line.
    """
    code, caller = frame.f_code, frame.f_back
    is_head = line == code.co_firstlineno and code.co_name != "<module>" and not code.co_flags & inspect.CO_GENERATOR
    if is_head and caller is not None and stack_frames.classify_code(caller.f_code) == stack_frames.USER:
        return (caller.f_code.co_filename, caller.f_lineno), code.co_name
    return (code.co_filename, line), ""


class LineFollower:
    """A trace function for `sys.settrace`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.hits: dict[tuple[int, int], int] = {}
        self.native_draws = native_entropy.make_native_draw_counter()
        self.drawn = 0
        self.environment_loops = EnvironmentLoops()
        held = recorder.config.held_variables
        self.holder = VariableHolder(held, recorder.process_role_path) if held is not None else None

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
        held = self.save_or_hold_variables(frame, line, self.holder) if self.holder is not None else {}
        key = (id(frame.f_code), line)
        hits = self.hits[key] = self.hits.get(key, 0) + 1
        if hits > MOST_HITS and not held:
            return
        recorder.thread.inside_samerun += 1
        changed: list[tuple[str, bytes]] = []
        try:
            values = {**frame.f_locals, **held}
            if held:  # `f_locals` is not read again: before Python 3.13 that would take the values back
                frame.f_locals.update(held)
            of_environment = self.environment_loops.find_locals_holding_values_of_os_environ_loop(frame.f_code, values)
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
        if drew:
            location_id = writer.intern_location(frame.f_code.co_filename, line, "")
            recorder.emit(f.LINE, name=NATIVE_DRAW, location_id=location_id, phase=f.HOST)
        (file, number), function = _locate_assignment_or_call_and_callee(frame, line)
        location_id = writer.intern_location(file, number, "")
        for name, found in changed:
            recorder.emit(
                f.LINE, name=f"{function}({name})" if function else name, location_id=location_id,
                outputs=found.ljust(16, b"\0")[:16], phase=f.HOST,
            )  # fmt: skip

    def save_or_hold_variables(self, frame: FrameType, line: int, holder: VariableHolder) -> dict[str, Any]:
        """The values that variables of the frame have to get after a line; empty where they are only saved."""
        (file, number), function = _locate_assignment_or_call_and_callee(frame, line)
        location = to_original_path(file, self.recorder.config.copied_folder), number
        if location not in holder.names:
            return {}
        self.recorder.thread.inside_samerun += 1
        try:
            return holder.update(location, f"{function}(" if function else "", frame.f_locals, frame.f_globals)
        finally:
            self.recorder.thread.inside_samerun -= 1

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
            looped = self.environment_loops.find_locals_holding_values_of_os_environ_loop(frame.f_code, {"": value})
            found = ENVIRONMENT if looped else digest_variable(value)
        except Exception:
            return
        finally:
            recorder.thread.inside_samerun -= 1
        writer = recorder.writer or recorder.open_writer()
        if writer is not None:
            location_id = writer.intern_location(frame.f_code.co_filename, line, "")
            caller = frame.f_back  # the function may have been called from C, by `sorted` say, on a line of the user's
            to = writer.intern_location(caller.f_code.co_filename, caller.f_lineno, "") if caller is not None else 0
            recorder.emit(
                f.LINE, name=f"{frame.f_code.co_name}()", location_id=location_id, aux=to,
                outputs=found.ljust(16, b"\0")[:16], phase=f.HOST,
            )  # fmt: skip

    def native_code_drew_since_last_call(self) -> bool:
        """True if native code drew random bytes of the system since the last call."""
        if self.native_draws is None:
            return False
        before, self.drawn = self.drawn, self.native_draws()
        return self.drawn != before
