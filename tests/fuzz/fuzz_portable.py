"""Arguments that do not fit, to every operator inside `portable()`: an error or a result, and never wild memory.

    python tests/fuzz/fuzz_portable.py [--cases 20000] [--seed 0] [--library PATH] [--samples] [--wrong]

Each case is a call with one or two arguments changed (`portable_calls.py`). It runs in a child process; where that
dies, the case is printed and the next child goes on behind it. What must hold of operators that programs call:
torch's own error, the same type and words, where torch raises, and no error but NotPortableError where it does not.
Gradients are called by torch alone: there the memory alone is looked at. --wrong: after the cases, all arguments that
torch's own samples list as wrong (`error_inputs` of `op_db`), where any other error than torch's is a failure.

--library: the C library built with AddressSanitizer (`SAMERUN_SANITIZE=1 python setup.py build_ext`), whose run-time
library must be preloaded: `make fuzz-portable` does both. --samples: with torch's own samples of all operators too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
if "--library" in sys.argv:  # before anything loads the usual one
    from samerun.base import native

    _library = ctypes.CDLL(sys.argv[sys.argv.index("--library") + 1])
    native.try_load_built_library = lambda module, name, **options: _library

import portable_calls
import torch
from torch import Tensor
from torch.utils import _pytree

from samerun.numerics.aten_handlers import checks
from samerun.numerics.kernels import library
from samerun.numerics.verification import calls
from samerun.numerics.verification.calls import RecordedCall

DIED, DIED_IN_TORCH, RAISED, WRONG = "died", "died in torch", "raised where torch does not", "took what torch refuses"
WORDS = "other words"
IN_A_CHILD = 500
"""Cases that one child process runs."""


Run = Callable[[bool], Any]
"""Runs what is tried, with True inside `portable()`."""


def outcome(run: Run, inside: bool) -> tuple[str, str]:
    """("", shapes and types), or type and first line of an error."""
    try:
        found = run(inside)
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]
    return "", str([(tuple(x.shape), str(x.dtype)) for x in _pytree.tree_leaves(found) if isinstance(x, Tensor)])


def compare(run: Run, note_torch: Callable[[], object], ask_torch: bool = True) -> str | None:
    """What is wrong with what `portable()` did; None: nothing. note_torch: called before torch itself is."""
    ours = outcome(run, True)
    note_torch()
    if ours[0] == "NotPortableError" or not ask_torch:
        return None
    theirs = outcome(run, False)
    if ours[0] and not theirs[0]:
        return f"{RAISED}: {ours[0]}: {ours[1]}"
    if theirs[0] and not ours[0]:
        return f"{WRONG}: {theirs[0]}: {theirs[1]}"
    return f"{WORDS}: {ours} instead of {theirs}" if theirs[0] and ours != theirs else None


class Cases:
    """Case number n of a seed: always the same. Every operator has its turn."""

    def __init__(self, known: list[RecordedCall], seed: int) -> None:
        self._of: dict[str, list[RecordedCall]] = {}
        for call in known:
            self._of.setdefault(call.operator, []).append(call)
        self._names, self._seed = sorted(self._of), seed

    def __getitem__(self, number: int) -> RecordedCall:
        chance = random.Random(f"{self._seed} {number}")
        known = self._of[self._names[number % len(self._names)]]
        return portable_calls.change(chance.choice(known), chance)

    def judge(self, number: int, note_torch: Callable[[], object]) -> str | None:
        call = self[number]
        torch_kernel_may_crash = checks.torch_kernel_may_crash(call.operator.split(".")[1])
        return compare(
            lambda inside: calls.reseed_with_0_and_rerun_call(call, inside),
            note_torch,
            ask_torch=not torch_kernel_may_crash,
        )

    def show(self, number: int) -> str:
        return portable_calls.show(self[number])


class WrongSamples:
    """Arguments that torch's own samples list as wrong."""

    def __init__(self, samples: list[portable_calls.WrongSample]) -> None:
        self._samples = samples

    def judge(self, number: int, note_torch: Callable[[], object]) -> str | None:
        return compare(self._samples[number].run, note_torch)

    def show(self, number: int) -> str:
        return self._samples[number].name


def run_child(cases: Cases | WrongSamples, first: int, last: int, place: Path, found: Path) -> None:
    with place.open("r+b", buffering=0) as at, found.open("a", encoding="utf-8") as out:
        for number in range(first, last):
            at.seek(0)
            at.write(b"%20d  ours" % number)
            problem = cases.judge(number, lambda: (at.seek(22), at.write(b"torch")))
            if problem is not None:
                out.write(f"{number}\t{problem}\t{cases.show(number)}\n".replace("\0", " "))
        at.seek(0)
        at.write(b"%20d  ours" % last)


def search(cases: Cases | WrongSamples, count: int) -> list[tuple[int, str, str]]:
    """Number, problem and call of each case that went wrong. With one thread: a child has none of its parent's team."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return search_in_children(cases, count)
    finally:
        torch.set_num_threads(threads)


def search_in_children(cases: Cases | WrongSamples, count: int) -> list[tuple[int, str, str]]:
    with tempfile.TemporaryDirectory() as name:
        place, found = Path(name, "place"), Path(name, "found")
        place.write_bytes(b"%20d  ours " % 0)
        found.touch()
        died, first = [], 0
        while first < count:
            last = min(first + IN_A_CHILD, count)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run_child(cases, first, last, place, found)
                    code = 0
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            reached, stage = place.read_text().split()
            first = int(reached)
            if status:
                problem = DIED if stage == "ours" else DIED_IN_TORCH
                died.append((first, f"{problem}: {status}", cases.show(first)))
                first += 1
        lines = [line.split("\t") for line in found.read_text("utf-8").splitlines()]
    return died + [(int(number), problem, call) for number, problem, call in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--samples", action="store_true")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--words", action="store_true", help="fail for other words than torch's too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not library.is_available():
        sys.exit("the C library is not there")
    known = portable_calls.calls_of_cases() + (portable_calls.calls_of_samples() if options.samples else [])
    failed = report(search(Cases(known, options.seed), options.cases), f"{options.cases} cases", options.words)
    if options.wrong:
        samples = portable_calls.wrong_samples()
        failed |= report(search(WrongSamples(samples), len(samples)), f"{len(samples)} of torch's wrong samples", True)
    sys.exit(failed)


def report(problems: list[tuple[int, str, str]], what: str, every_kind: bool) -> bool:
    """Print what went wrong; whether that is a failure: wild memory always, the rest with `every_kind`."""
    kinds: Counter[str] = Counter()
    for number, problem, call in problems:
        kind = problem.split(":")[0]
        kinds[kind] += 1
        if kind == DIED or every_kind:
            print(f"{number}: {problem}\n    {call}")
    print(f"{what}: {dict(kinds) or 'nothing wrong'}", flush=True)
    return DIED in kinds or (every_kind and bool(kinds))


if __name__ == "__main__":
    main()
