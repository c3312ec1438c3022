"""Random command lines for every command: each ends with 0, 1 or 2, and never with a traceback.

    python tests/fuzz/fuzz_commands.py [--count 20000] [--seed 0]

In this process, in a folder of its own. Where a program would be started it ends: what is tested is what a command
makes of its arguments and of the files they name. `--numerics` is left out: it computes for seconds.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import click
from fuzz_options import count_and_seed
from hostile_traces import operators, write
from sample_receipts import made, section

import samerun.check.variations.table  # noqa: F401 - it starts `locale -a`, once
from samerun.cli import main as samerun_main
from samerun.cli import samerun_group
from samerun.record.receipt import receipt_file

FILES = [
    "train.py",
    "broken.py",
    "a.json",
    "b.json",
    "traces",
    "empty",
    "none",
    ".",
    "..",
    "nothere/x.json",
    "latin.py",
]
WORDS = [
    "",
    "-",
    "--",
    "-m",
    "--help",
    "-h",
    "--version",
    "-1",
    "0",
    "1",
    "3",
    "2.5",
    "1e309",
    "nan",
    "inf",
    "x",
    "all",
    "rerun",
    "hash_seed,threads",
    ",",
    "NAME=A,B",
    "=",
    "A=",
    "time:train.py:12",
    "rerun::",
    ":",
    "resume",
    "3:KILL",
    "3:XX",
    "'",
    '"STOP=1',
    "STOP=1 --x",
    "*",
    "[",
    "**/[",
    "\x1b[2J",
    "a\nb",
    "\u202e",
    "x" * 5000,
    "\udcff",
    "☃",
    "nosuch://x/y.json",
    "memory://x/",
    "://",
    "0" * 64,
    "python",
    "torchrun",
    "nosuchcommand",
    "9" * 40,
]
LEFT_OUT = {"--numerics"}


class StartedError(BaseException):
    """Here a program would run."""


def start(*args: Any, **options: Any) -> Any:
    raise StartedError


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **options: Any) -> None:
        self.returncode = 0  # for its finalizer
        self._child_created = False
        if any("guard.py" in str(word) for word in args[0]):
            raise OSError("left out")  # it guards what is started, and comes before all looks at the arguments
        raise StartedError


def prepare(folder: Path) -> None:
    """Files of each kind that an argument can name. Two folders down, so that `..` is ours, too."""
    (folder / "train.py").write_text("print(1)\n")
    (folder / "broken.py").write_text("print(\x1b\n")
    (folder / "latin.py").write_bytes(b"# \xe4\n")
    (folder / "empty").mkdir()
    (folder / "none").write_bytes(b"")
    receipt_file.write(folder / "a.json", made(section()))
    receipt_file.write(folder / "b.json", made(section(other={(3, "grads"): "x"})))
    write(folder / "traces" / "main.trace", operators(4))


def random_words(chance: random.Random) -> list[str]:
    """The name of a command, most times, some of its options with values that may fit, and what they are about."""
    commands = samerun_group.list_commands(click.Context(samerun_group))
    name = chance.choice(commands)
    command = samerun_group.get_command(click.Context(samerun_group), name)
    assert command is not None
    options = [each for each in command.params if isinstance(each, click.Option) and not LEFT_OUT & set(each.opts)]
    words = [name] if chance.random() < 0.98 else [chance.choice(WORDS)]
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3, 6])):
        if chance.random() < 0.1:
            words.append(chance.choice([*WORDS, *FILES]))
            continue
        option = chance.choice(options)
        words.append(chance.choice(option.opts))
        if not option.is_flag and chance.random() < 0.95:
            fitting = list(option.type.choices) if isinstance(option.type, click.Choice) else FILES
            words.append(str(chance.choice(chance.choice([fitting, WORDS, FILES, ["1", "2", "7"]]))))
            if chance.random() < 0.1:
                words[-2:] = [f"{words[-2]}={words[-1]}"]
    words += [chance.choice(chance.choice([FILES, FILES, WORDS])) for _ in range(chance.choice([0, 1, 1, 2, 2, 3]))]
    return [word.replace("--numerics", "--all") for word in words]


@contextlib.contextmanager
def nothing_started() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(subprocess, "Popen", Popen))
        for name in ("fork", "execvpe", "execve", "execv", "posix_spawn", "posix_spawnp", "system"):
            if hasattr(os, name):
                stack.enter_context(mock.patch.object(os, name, start))
        yield


def run_command(words: list[str]) -> int | None:
    """The exit code; None where a program would have been started. AssertionError where it ends in another way."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code: Any = None
    held = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    streams = sys.stdin, sys.stdout, sys.stderr, sys.argv
    sys.stdin, sys.stdout, sys.stderr, sys.argv = io.StringIO(), said, said, ["samerun", *words]
    try:
        with nothing_started():
            samerun_main()
        code = 0
    except SystemExit as end:
        code = 0 if end.code is None else end.code
    except StartedError:
        pass
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = streams
        for number, handler in held.items():
            signal.signal(number, handler)
    said.flush()
    text = said.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    assert code in (0, 1, 2, None), f"exit code {code!r}: {text}"
    assert "Traceback (most" not in text and "this is a bug in samerun" not in text, text
    assert "\x1b[2J" not in text and "\u202e" not in text, f"what stands in the arguments reaches the terminal: {text}"
    return None if code is None else int(code)


@contextlib.contextmanager
def folder_to_run_in() -> Iterator[None]:
    begun_in = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "inner" / "folder"
        folder.mkdir(parents=True)
        prepare(folder)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(begun_in)


def run(count: int, seed: int) -> dict[int | None, int]:
    """How many ended with which code."""
    chance = random.Random(seed)
    codes: dict[int | None, int] = {}
    for begin in range(0, count, 500):  # fresh folders: what the commands write must not pile up
        with folder_to_run_in():
            for _ in range(min(500, count - begin)):
                words = random_words(chance)
                try:
                    code = run_command(words)
                except BaseException:
                    print(f"samerun {json.dumps(words)}", file=sys.stderr)
                    raise
                codes[code] = codes.get(code, 0) + 1
    return codes


def main() -> None:
    for code, count in run(*count_and_seed(__doc__ or "")).items():
        print(f"{count} ended with {code}" if code is not None else f"{count} would have started a program")


if __name__ == "__main__":
    main()
