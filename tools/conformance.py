"""Write the conformance vectors from the slow reference, or run them elsewhere.

    python tools/conformance.py             write src/samerun/numerics/verification/vectors.txt
    python tools/conformance.py --check     exit 1 when the reference gives others
    python tools/conformance.py --compiler gcc "--flags=-O3 -fsanitize=address,undefined"
    python tools/conformance.py --compiler aarch64-linux-gnu-gcc --flags=-static --emulator qemu-aarch64

With --compiler the C sources alone are built into a program, which must print the vectors (exit 1 when it prints
others), but for those of what is written in torch's operators; no Python and no torch are needed where it runs. The
rows of a released version never change: a new version of the specification gets new rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "src" / "samerun" / "numerics" / "verification" / "vectors.txt"
NATIVE = ROOT / "native"
# As in setup.py: what decides on bits, and what the kernels may count on.
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
OTHER_LIBRARIES = ("digest.c", "entropy.c", "folder.c", "states.c", "wrap.c")
"""Sources in native/ that are no kernels (ALONE in setup.py); one of them includes Python.h."""


def compute_by_reference() -> str:
    from samerun.numerics.kernels import library
    from samerun.numerics.verification import conformance

    library.force_level(library.REFERENCE)
    return "".join(f"{row}\n" for row in conformance.compute_conformance_rows())


def compute_by_program(compiler: list[str], flags: list[str], emulator: list[str], level: list[str]) -> str:
    """Build the C sources into a program and return what it prints.

    Raises CalledProcessError where it cannot be built or run.
    """
    sources = sorted(path for path in NATIVE.glob("*.c") if path.name not in OTHER_LIBRARIES)
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        program = Path(folder) / "conformance"
        files = [str(NATIVE / "tests" / "conformance.c"), *map(str, sources)]
        subprocess.run([*compiler, *FLAGS, *flags, "-o", str(program), *files, "-lm", "-pthread"], check=True)
        return subprocess.run([*emulator, str(program), *level], stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--compiler", type=str.split, help="build the C sources with this and run them")
    parser.add_argument("--flags", type=str.split, default=[], help="more flags for the compiler")
    parser.add_argument("--emulator", type=str.split, default=[], help="what runs the program")
    parser.add_argument("--level", type=str.split, default=[], help="plain, avx2, avx512 or neon; else the best there")
    given = parser.parse_args()
    if given.compiler is None:
        text = compute_by_reference()
        if not given.check:
            VECTORS.write_text(text, encoding="utf-8")
    else:
        try:
            text = compute_by_program(given.compiler, given.flags, given.emulator, given.level)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"conformance: {error}", file=sys.stderr)
            return 2
    wanted, got = set(VECTORS.read_text(encoding="utf-8").splitlines()), set(text.splitlines())
    if given.compiler is not None:
        from samerun.numerics.verification.conformance import WITHOUT_C_FUNCTION

        wanted = {row for row in wanted if row.split(" ")[0] not in WITHOUT_C_FUNCTION}
    for row in sorted(got - wanted):
        print(f"differs: {row}", file=sys.stderr)
    if wanted - got:
        print(f"{len(wanted - got)} of {len(wanted)} rows were not given", file=sys.stderr)
    return int(wanted != got)


if __name__ == "__main__":
    sys.exit(main())
