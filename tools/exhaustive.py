"""Prove functions of class R on all 2^32 inputs: `python tools/exhaustive.py [NAME...]`. A minute or two each.

native/tests/exhaustive.c compares with the C library's double functions wherever their result is certain; what it
leaves is judged here with mpmath in 300 bits. Each wrong result is printed as `NAME INPUT RESULT WANTED` in bits:
INPUT and WANTED are an entry of native/functions/exceptions.h. `--hard FILE` keeps the hardest inputs.
`--outputs DIR` judges what earlier runs of the C program printed to DIR/NAME.txt.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mpmath import mp, mpf  # type: ignore[import-untyped]

NATIVE = Path(__file__).resolve().parents[1] / "native"
BITS = 300
HARDEST = 40
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

EXACT: dict[str, Any] = {
    "exp2": lambda x: mpf(2) ** x,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
}
"""What mpmath calls otherwise, or does not have."""


class JudgedResult(NamedTuple):
    """One input, as bits, with our result and the right one; how far it is from the middle of two floats (ulp)."""

    input: int
    result: int
    wanted: int
    distance: float


def list_functions() -> list[str]:
    """The functions, in the order of their numbers."""
    text = (NATIVE / "functions" / "float_functions.h").read_text(encoding="utf-8").replace("\\\n", " ")
    found: list[str] = []
    for table in ("PLAIN_FUNCTIONS", "CORE_FUNCTIONS"):
        line = re.search(rf"#define {table}\(F\)(.*)", text)
        assert line is not None, f"float_functions.h has no table {table}"
        found += re.findall(r"F\((\w+)\)", line.group(1))
    return found


def bits_to_float(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def float_to_bits(value: float) -> int:
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def round_exact(exact: Any) -> tuple[int, float]:
    """A number of many digits, not 0, as the bits of the nearest float (ties to even), and its distance to a tie."""
    size = abs(exact)
    exponent = max(int(mp.frexp(size)[1]) - 24, -149)
    scaled = mp.ldexp(size, -exponent)
    whole = int(mp.floor(scaled))
    rest = scaled - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):
        whole += 1
    value = float(mp.ldexp(whole, exponent)) if whole and exponent + whole.bit_length() <= 128 else 0.0
    if whole and not value:
        value = float("inf")
    return float_to_bits(value) | (0x80000000 if exact < 0 else 0), float(abs(rest - mpf("0.5")))


def compute_exact(name: str, x: float) -> Any:
    """The value of a function, to `BITS` bits, where it is finite and not 0."""
    mp.prec = BITS
    return (EXACT[name] if name in EXACT else getattr(mp, name))(mpf(x))


def build_program(folder: Path) -> Path:
    program = folder / "exhaustive"
    sources = [
        NATIVE / "tests" / "exhaustive.c",
        *NATIVE.glob("kernels*.c"),
        NATIVE / "simd_level.c",
        NATIVE / "thread_pool.c",
    ]
    subprocess.run(["cc", *FLAGS, "-o", program, *sources, "-lm", "-pthread"], check=True)
    return program


def parse_results(name: str, lines: Iterable[str], expected: int = 1 << 32) -> Iterator[JudgedResult]:
    """What the C program said, decided. Raises ValueError where it did not finish."""
    done = 0
    for line in lines:
        word, *rest = line.split()
        if word == "done":
            done = int(rest[0])
            continue
        given, result = int(rest[0], 16), int(rest[1], 16)
        if word == "wrong":
            yield JudgedResult(given, result, int(rest[2], 16), 0)
        else:
            yield JudgedResult(given, result, *round_exact(compute_exact(name, bits_to_float(given))))
    if done != expected:
        raise ValueError(f"{name}: {done} inputs were run, not {expected}")


def run_program(program: Path, name: str, first: int = 0, count: int = 1 << 32, level: str = "") -> list[JudgedResult]:
    command = [str(program), name, str(first), str(count), *([level] if level else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(parse_results(name, done.stdout.splitlines(), count))


def main(arguments: list[str]) -> int:
    options = {}
    for option in ("--hard", "--outputs"):
        if option in arguments:
            at = arguments.index(option)
            options[option] = Path(arguments[at + 1])
            del arguments[at : at + 2]
    hard: dict[str, list[list[str]]] = {}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        program = None if "--outputs" in options else build_program(Path(folder))
        for name in arguments or list_functions():
            if program is None:
                text = (options["--outputs"] / f"{name}.txt").read_text(encoding="utf-8")
                results = list(parse_results(name, text.splitlines()))
            else:
                results = run_program(program, name)
            for each in results:
                if each.result != each.wanted:
                    wrong += 1
                    print(f"{name} {each.input:08x} {each.result:08x} {each.wanted:08x}")
            listed = [each for each in results if each.result != each.wanted]
            hardest = listed + sorted(results, key=lambda each: each.distance)[:HARDEST]
            hard[name] = [[f"{each.input:08x}", f"{each.wanted:08x}"] for each in hardest]
            print(f"{name}: {len(results)} of 2^32 inputs judged", file=sys.stderr)
    if "--hard" in options:
        lines = [f"{json.dumps(name)}: {json.dumps(hard[name])}" for name in hard]
        options["--hard"].write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
