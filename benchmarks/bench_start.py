"""What `samerun run` adds to the start of a program: an empty script, with and without, in turns.

    python benchmarks/bench_start.py [--rounds 20]

Wall time of whole processes; medians over the rounds, and of the differences within a round. A second pair
imports torch, whose import then also puts the switches in force.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = {"empty": "", "imports torch": "import torch\n"}


def seconds(command: list[str]) -> float:
    # Bytecode is kept, as for an installed package: compiling it anew at every start is not what users have.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print("| program | python, ms | samerun run, ms | added, ms | quartiles |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROGRAMS.items():
            script = Path(folder) / "program.py"
            script.write_text(text)
            plain = [sys.executable, str(script)]
            held = [sys.executable, "-m", "samerun", "run", "--quiet", str(script)]
            seconds(plain), seconds(held)
            pairs = [(seconds(plain), seconds(held)) for _ in range(rounds)]
            added = sorted((b - a) * 1e3 for a, b in pairs)
            print(
                f"| {name} | {statistics.median(a for a, _ in pairs) * 1e3:.0f} "
                f"| {statistics.median(b for _, b in pairs) * 1e3:.0f} | {statistics.median(added):.0f} "
                f"| {added[rounds // 4]:.0f}-{added[-1 - rounds // 4]:.0f} |"
            )


if __name__ == "__main__":
    main()
