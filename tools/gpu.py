"""Everything that is to be learned from a machine with a CUDA device, in order of worth, one part after the other.

    python tools/gpu.py --minutes 40             all parts, until they are done or the time is over
    python tools/gpu.py --minutes 9              called again: goes on where the last call stopped
    python tools/gpu.py --minutes 9 --beside     parts that measure no time beside each other: many cores, little time
    python tools/gpu.py --list                   the parts, and what is known of each
    python tools/gpu.py --only vectors,training  these alone
    python tools/gpu.py --skip 'samples,operators:repeats of cumsum*'
    python tools/gpu.py --repeat 'vectors:n=257' one check again, shown in full
    python tools/gpu.py --again failed           all that failed once more, and what is left
    python tools/gpu.py --device emulated        a dry run on the CPU, without a GPU
    python tools/gpu.py --collect-wheels wheels  where there is a package index: what a bare machine may lack

Each part runs in a process group of its own with a limit. A failure, a crash, a hang or a lost device is recorded, and
the rest goes on. Results are kept in --json as they come, with a page in Markdown beside it; what is known there is not
measured again unless its sources changed. Needed: Python 3.10, torch 2.10. Nothing is fetched.

Exit code 0: all that ran holds. 1: something failed. 2: nothing could be run. 3: the time was over, or Ctrl-C, before
all was reached, and nothing failed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_parts import machine
from gpu_parts.checks import ROOT
from gpu_parts.record import RunRecord, digest_inputs, is_selected, list_states, summarize_part
from gpu_parts.runner import PartRun, part_command, run_part_in_process
from gpu_parts.table import PARTS, PartEntry

LAST_SECONDS = 5.0
"""Kept of the time for writing results down."""
LEAST_SECONDS = 10.0
"""With less than this left no further part is begun."""


class Session:
    """One call of the program: the options, the record, and the clock."""

    def __init__(self, options: argparse.Namespace, words: list[str]) -> None:
        self.options, self.words = options, words
        self.record = RunRecord(options.json, options.device)
        limit = float("inf") if options.minutes is None else 60.0 * options.minutes - LAST_SECONDS
        self.deadline = time.monotonic() + limit
        self.work: Path = options.json.parent.resolve() / f"{options.json.stem}-work"
        self.interrupted = False

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def wanted_patterns(self, part: PartEntry) -> list[str]:
        """Patterns of the part's checks that --only names; none: the part is not wanted."""
        return patterns_of(part, self.options.only) if self.options.only else ["*"]

    def is_wanted(self, part: str, check: str) -> bool:
        only, skip = self.options.only, self.options.skip
        return (not only or is_selected(part, check, only)) and not is_selected(part, check, skip)

    def run(self) -> int:
        if self.options.repeat:
            self.options.only = self.options.again = self.options.repeat
        self.record.forget(self.options.again)
        self.work.mkdir(parents=True, exist_ok=True)
        environment, missing = machine.make_environment(self.work, self.options.wheels)
        say(f"looking at torch and {self.options.device} ...")
        facts = machine.probe_torch(environment, self.options.device)
        native = machine.NativeBuild(environment, missing)
        try:
            self.record.machine = machine.describe_run(facts, native.state, missing, self.options.device)
            self.run_parts(facts, native, environment, missing)
        finally:
            native.stop()
        self.record.write(self.words)
        page = write_page(self.options.json)
        return self.tell_end(page)

    def run_parts(
        self, facts: dict[str, Any], native: machine.NativeBuild, environment: dict[str, str], missing: list[str]
    ) -> None:
        say(", ".join(f"{name} {value}" for name, value in self.record.machine.items() if value is not None))
        identity: list[Any] = [facts, sys.version_info[:2], self.options.device]
        if self.options.beside:
            native.wait(self.seconds_left())
            self.record.machine["native code"] = native.state
            self.run_untimed_parts_beside()
        for part in PARTS:
            patterns = self.wanted_patterns(part)
            if not patterns or part.name in self.options.skip:
                continue
            if self.interrupted or self.seconds_left() < LEAST_SECONDS:
                break
            built = None
            if part.name != "kernels":  # which compiles for a minute itself, and needs no C
                native.wait(self.seconds_left())
                self.record.machine["native code"] = native.state
                built = native.state.startswith("built")  # what was skipped without it is not known with it
            self.run_part(part, patterns, environment, missing, json.dumps([*identity, built]))
            self.record.write(self.words)

    def run_untimed_parts_beside(self) -> None:
        """Each part that measures no time in a call of its own, all at once; takes over their results."""
        records, calls = {}, {}
        for part in PARTS:
            if part.measures_time or not self.wanted_patterns(part) or part.name in self.options.skip:
                continue
            own = records[part.name] = RunRecord(self.work / f"{part.name}.json", self.options.device)
            own.parts = {name: entry for name, entry in self.record.parts.items() if name == part.name}
            own.machine = self.record.machine
            own.write(self.words)
            calls[part.name] = self.start_call(part, own.path)
            say(f"{part.name}: begun beside the others")
        while self.seconds_left() > -30 and any(call.poll() is None for call in calls.values()):
            try:
                time.sleep(0.1)
            except KeyboardInterrupt:  # from a terminal they have it too
                self.interrupted = True
                break
        for name, call in calls.items():
            if call.poll() is None:
                call.send_signal(signal.SIGINT)
            call.wait()
            records[name].read()
            self.record.parts.update(records[name].parts)
            for line in (self.work / f"{name}.out").read_text(encoding="utf-8").splitlines():
                if line.startswith("  "):
                    say(line)
        self.record.write(self.words)

    def start_call(self, part: PartEntry, json_path: Path) -> subprocess.Popen[bytes]:
        options = self.options
        words = []
        for option, patterns in ("--only", self.wanted_patterns(part)), ("--skip", patterns_of(part, options.skip)):
            words += [option, ",".join(f"{part.name}:{each}" for each in patterns)]
        words += ["--device", options.device, "--json", str(json_path), "--patience", str(options.patience)]
        words += ["--minutes", str(self.seconds_left() / 60)] if options.minutes is not None else []
        words += ["--wheels", str(options.wheels)] if options.wheels is not None else []
        words += ["--verbose"] if options.verbose else []
        with open(self.work / f"{part.name}.out", "wb") as output:
            return subprocess.Popen(
                [sys.executable, sys.argv[0], *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def run_part(
        self, part: PartEntry, patterns: list[str], environment: dict[str, str], missing: list[str], identity: str
    ) -> None:
        entry = self.record.begin_part(part, digest_inputs(part, identity))
        absent = [name for name in part.packages if name in missing]
        if absent:
            entry.update(ended="unusable", trouble=[f"{', '.join(absent)} missing: carry wheels (--wheels DIR)."])
            say(f"{part.name}: skipped, without {', '.join(absent)}")
            return
        if entry["ended"] == "done":
            say(f"{part.name}: known ({summarize_part(entry)[0]})")
            return
        began = time.monotonic()
        say(f"{part.name}: {part.what}")
        run = run_part_in_process(
            part_command(part.name, self.options.device, patterns, patterns_of(part, self.options.skip)),
            {**environment, **dict(part.variables)},
            min(self.deadline, began + part.seconds * self.options.patience),
            entry["checks"],
            lambda name, found: self.take_result(part, entry, name, found),
            self.work,
            lambda name: show_running(part.name, name),
        )
        self.finish_part(part, entry, run, time.monotonic() - began)

    def take_result(self, part: PartEntry, entry: dict[str, Any], name: str, found: dict[str, Any]) -> None:
        entry["checks"][name] = found
        self.record.write(self.words, force=False)
        if found["state"] == "failed" or self.options.repeat or self.options.verbose:
            say(f"  {found['state']:8} {part.name}:{name}")
            for line in found.get("failure", [])[: None if self.options.repeat else 3]:
                say(f"           {line}")
            if self.options.repeat and found["state"] != "failed":
                say(f"           {json.dumps({k: v for k, v in found.items() if k != 'state'})}")

    def finish_part(self, part: PartEntry, entry: dict[str, Any], run: PartRun, seconds: float) -> None:
        entry["plan"] = run.plan or entry["plan"]
        entry["trouble"] = run.trouble
        entry["seconds"] = round(entry["seconds"] + seconds, 1)
        left = [name for name in entry["plan"] if name not in entry["checks"]]
        entry["ended"] = "unfinished" if run.ended == "done" and left else run.ended
        self.interrupted = run.ended == "interrupted"
        state, counts = summarize_part(entry)
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        say(f"  {part.name}: {state} ({told}), {seconds:.0f} s")
        for line in run.trouble:
            say(f"    {line}")

    def tell_end(self, page: Path) -> int:
        wanted = [part for part in PARTS if self.wanted_patterns(part) and part.name not in self.options.skip]
        entries = {part.name: self.record.parts.get(part.name, {}) for part in wanted}
        failed = [
            name for name, entry in entries.items()
            if entry.get("ended") == "broken" or any(
                facts["state"] == "failed" for check, facts in entry.get("checks", {}).items()
                if self.is_wanted(name, check)
            )
        ]  # fmt: skip
        left = [
            name for name, entry in entries.items()
            if entry.get("ended") not in ("unusable", "broken") and (not entry.get("plan") or any(
                self.is_wanted(name, check) for check in entry["plan"] if check not in entry["checks"]))
        ]  # fmt: skip
        say(f"\nresults: {self.options.json}\npage:    {page}")
        if failed:
            say(f"failed:  {', '.join(failed)}")
        if left:
            say(f"left:    {', '.join(left)} (the same command goes on)")
        if failed:
            return 1
        return 3 if left or self.interrupted else 0


def patterns_of(part: PartEntry, selectors: list[str]) -> list[str]:
    """The patterns of checks that selectors name for a part."""
    named = (each.partition(":") for each in selectors)
    return [pattern or "*" for name, _, pattern in named if name == part.name]


def write_page(record: Path) -> Path:
    """The record as a page of its own, beside it."""
    from result_tables import render_record

    page = record.with_suffix(".md")
    text = render_record(json.loads(record.read_text(encoding="utf-8")))
    page.write_text(f"# What a run of tools/gpu.py found\n\n{text}", encoding="utf-8")
    return page


_shown = 0


def say(text: str) -> None:
    """A line of progress."""
    global _shown
    if _shown:
        print("\r" + " " * _shown + "\r", end="")
        _shown = 0
    print(text, flush=True)


def show_running(part: str, check: str) -> None:
    """On a terminal: which check runs now, in a line that the next one replaces."""
    global _shown
    if sys.stdout.isatty():
        text = f"  {part}:{check}"[:100]
        print("\r" + text.ljust(_shown), end="", flush=True)
        _shown = len(text)


def parse_options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="end in good order after so many (default: no limit)"
    )
    parser.add_argument("--only", default=[], metavar="LIST", help="PART or PART:PATTERN of checks, comma-separated")
    parser.add_argument("--skip", default=[], metavar="LIST", help="parts or checks to leave out")
    parser.add_argument(
        "--again", default=[], metavar="LIST", help="parts or checks to measure anew; failed: all that did"
    )
    parser.add_argument("--repeat", default=[], metavar="LIST", help="only these, anew, and shown in full")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="benchmarks/results/gpu-cuda.json, or gpu-emulated.json"
    )
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="packages that may be missing (default: wheels/)")
    parser.add_argument("--collect-wheels", type=Path, metavar="DIR", help="download them there, and do nothing else")
    parser.add_argument("--patience", type=float, default=1.0, metavar="X", help="multiplies the limit of each part")
    parser.add_argument(
        "--beside", action="store_true", help="run parts that measure no time beside each other, then the others alone"
    )
    parser.add_argument("--list", action="store_true", help="the parts and what is known of them")
    parser.add_argument("--verbose", action="store_true", help="a line for every check")
    options = parser.parse_args(words)
    for name in ("only", "skip", "again", "repeat"):
        if isinstance(getattr(options, name), str):
            setattr(options, name, split_selectors(getattr(options, name)))
            unknown = [each for each in getattr(options, name) if not is_known_selector(each, name)]
            if unknown:
                parts = ", ".join(part.name for part in PARTS)
                parser.error(f"--{name} {','.join(unknown)}: there is no such part; the parts are {parts}.")
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: it must be more than 0.")
    if not options.patience > 0:
        parser.error(f"--patience {options.patience}: it must be more than 0.")
    if options.wheels is not None and not options.wheels.is_dir():
        parser.error(f"--wheels {options.wheels}: it is not a directory.")
    if options.wheels is None and (ROOT / "wheels").is_dir():
        options.wheels = ROOT / "wheels"
    if options.json is None:
        options.json = ROOT / "benchmarks" / "results" / f"gpu-{options.device}.json"
    return options


def split_selectors(text: str) -> list[str]:
    """Parts and PART:PATTERNs. A comma inside a pattern belongs to it unless a part's name follows."""
    found: list[str] = []
    for piece in text.split(","):
        name = piece.strip().partition(":")[0]
        if found and ":" in found[-1] and name not in {part.name for part in PARTS}:
            found[-1] += f",{piece}"
        else:
            found.append(piece.strip())
    return [each for each in found if each]


def is_known_selector(selector: str, option: str) -> bool:
    name = selector.partition(":")[0]
    return name in {part.name for part in PARTS} or (option == "again" and selector == "failed")


def refuse(message: str) -> NoReturn:
    print(f"gpu.py: {message}", file=sys.stderr)
    sys.exit(2)


def main(words: list[str]) -> int:
    options = parse_options(words)
    if options.collect_wheels is not None:
        return machine.collect_wheels(options.collect_wheels)
    session = Session(options, words)
    try:
        session.record.read()
    except (OSError, ValueError, KeyError) as error:
        refuse(f"--json {options.json}: {error}. Name another file.")
    if options.list:
        list_states(session.record, print)
        return 0
    # Until the record is written nothing may end this process half way: a second Ctrl-C waits for the first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return session.run()
    except machine.MachineTrouble as trouble:
        refuse(str(trouble))
    except KeyboardInterrupt:
        say("interrupted")
        if session.record.machine:
            session.record.write(words)
        return 3
    except OSError as error:
        refuse(f"{error.strerror or error}: {error.filename or shlex.join(words)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
