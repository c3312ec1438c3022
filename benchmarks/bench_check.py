"""What `samerun check` costs: a clean program against its plain run, a buggy one with and without forked runs.

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


def clean(results: Results, folder: Path, rounds: int, threads: int | None) -> None:
    report = folder / "clean.json"
    pairs = []
    for _ in range(rounds):
        plain = cost([sys.executable, str(CLEAN)], folder, threads, (0,))
        pairs.append((plain, cost(check(CLEAN, report), folder, threads, (0,))))
    runs = len(json.loads(report.read_text())["runs"])
    table = results.table(
        f"{CLEAN.name}: plain, and one check of it ({runs} runs)",
        {"time": "", "plain, s": ".1f", "check, s": ".1f", "ratio": ".2f", "beyond 2.6 times, s (aim: 6)": ".1f"},
    )
    for name in ("cpu", "clock"):
        a, b = ([getattr(pair[at], name) for pair in pairs] for at in (0, 1))
        ratio = statistics.median(y / x for x, y in zip(a, b, strict=True))
        beyond = statistics.median(y - TIMES * x for x, y in zip(a, b, strict=True))
        table.add(name, min(a), min(b), ratio, beyond)


def buggy(results: Results, folder: Path, program: Path, rounds: int, threads: int | None) -> None:
    found: dict[str, list[Cost]] = {"off": [], "on": []}
    causes, forked, runs = set(), 0, 0
    for number in range(rounds):
        for switch in ("off", "on") if number % 2 == 0 else ("on", "off"):
            saved = folder / f"{number}-{switch}"
            report = folder / f"{number}-{switch}.json"
            command = [*check(program, report)[:-1], "--save", str(saved), str(program)]
            found[switch].append(cost(command, folder, threads, (0, 1), SAMERUN_FORKS=switch))
            answer = json.loads(report.read_text())
            causes.add(json.dumps([answer["verdict"], answer["cause"]]))
            forked, runs = len(list(saved.glob("*/forked"))), len(answer["runs"])
    table = results.table(
        f"{program.name}: {runs} runs, {forked} of them forked; {len(causes)} different answer(s)",
        {"time": "", "without forks, s": ".1f", "with, s": ".1f", "ratio of minima": ".2f", "median ratio": ".2f"},
    )
    for name in ("cpu", "clock"):
        off, on = ([getattr(each, name) for each in found[switch]] for switch in ("off", "on"))
        median = statistics.median(y / x for x, y in zip(off, on, strict=True))
        table.add(name, min(off), min(on), min(on) / min(off), median)


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
            clean(results, Path(folder), options.rounds, options.threads)
        if "buggy" in options.parts:
            buggy(results, Path(folder), options.buggy.resolve(), options.rounds, options.threads)


if __name__ == "__main__":
    main()
