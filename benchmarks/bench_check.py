"""What `samerun check` costs: a clean program and a buggy one, each beside its plain run.

    python benchmarks/bench_check.py [--rounds 5] [--threads 1] [--parts clean,buggy] [--buggy FILE]

All ways take turns in every round. CPU is that of all processes of a command, user and system; the clock means
something on an idle machine only. A clean check is two runs: the aim is 2.6 times the plain run and 6 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from result_tables import Results, add_json_option

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CLEAN, BUGGY = EXAMPLES / "digits_cnn.py", EXAMPLES / "digits_cnn_buggy.py"
TIMES = 2.6


@dataclass(frozen=True)
class Cost:
    cpu: float
    clock: float


def cost(command: list[str], folder: Path, threads: int | None, codes: tuple[int, ...], **variables: str) -> Cost:
    """Run a command to its end. Fails where it does not end with one of these codes."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | variables
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    begin = time.perf_counter()
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in codes, (folder / "said").read_text(errors="replace")[-2000:]
    return Cost(used.ru_utime + used.ru_stime, seconds)


def check(program: Path, report: Path) -> list[str]:
    return [sys.executable, "-m", "samerun", "check", "--quiet", "--json", str(report), str(program)]


def measure(results: Results, folder: Path, program: Path, code: int, rounds: int, threads: int | None) -> None:
    """A program alone, and one check of it that ends with `code`, in turns."""
    report = folder / "report.json"
    pairs = []
    for _ in range(rounds):
        plain = cost([sys.executable, str(program)], folder, threads, (0,))
        pairs.append((plain, cost(check(program, report), folder, threads, (code,))))
    runs = len(json.loads(report.read_text())["runs"])
    table = results.table(
        f"{program.name}: plain, and one check of it ({runs} runs)",
        {"time": "", "plain, s": ".1f", "check, s": ".1f", "ratio": ".2f", "beyond 2.6 times, s": ".1f"},
    )
    for name in ("cpu", "clock"):
        a, b = ([getattr(pair[at], name) for pair in pairs] for at in (0, 1))
        ratio = statistics.median(y / x for x, y in zip(a, b, strict=True))
        beyond = statistics.median(y - TIMES * x for x, y in zip(a, b, strict=True))
        table.add(name, min(a), min(b), ratio, beyond)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--parts", default="clean,buggy")
    parser.add_argument("--buggy", type=Path, default=BUGGY)
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-check-") as folder, Results(options.json) as results:
        if "clean" in options.parts:
            measure(results, Path(folder), CLEAN, 0, options.rounds, options.threads)
        if "buggy" in options.parts:
            measure(results, Path(folder), options.buggy.resolve(), 1, options.rounds, options.threads)


if __name__ == "__main__":
    main()
