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

from result_tables import Results, add_json_option

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
    add_json_option(parser)
    options = parser.parse_args()
    rounds = options.rounds
    with tempfile.TemporaryDirectory() as folder, Results(options.json) as results:
        table = results.table(
            "start of a program",
            {"program": "", "python, ms": ".0f", "samerun run, ms": ".0f", "added, ms": ".0f", "quartiles": ""},
        )
        for name, text in PROGRAMS.items():
            script = Path(folder) / "program.py"
            script.write_text(text)
            plain = [sys.executable, str(script)]
            held = [sys.executable, "-m", "samerun", "run", "--quiet", str(script)]
            seconds(plain), seconds(held)
            pairs = [(seconds(plain), seconds(held)) for _ in range(rounds)]
            added = sorted((b - a) * 1e3 for a, b in pairs)
            table.add(
                name,
                statistics.median(a for a, _ in pairs) * 1e3,
                statistics.median(b for _, b in pairs) * 1e3,
                statistics.median(added),
                f"{added[rounds // 4]:.0f}-{added[-1 - rounds // 4]:.0f}",
            )


if __name__ == "__main__":
    main()
