"""Run training programs that others wrote under samerun, and compare with what they do alone.

    python tools/run_public_programs.py                        all programs of tests/programs/public/programs.toml
    python tools/run_public_programs.py examples-mnist --clean  one of them, without its planted hazard
    python tools/run_public_programs.py --results results.jsonl --clones ~/.cache/public-programs

Nothing of their code is kept in this repository: the list names a repository, a commit and files, which are taken out
of a clone (made on the first use) into a temporary folder. The data are synthetic. Each program is run:

- twice alone, through tests/programs/public/digest_steps.py, which digests every parameter after every optimizer step
  without samerun: these digests and the outputs are the independent truth;
- under `samerun check` and `samerun run --receipt`: output, exit code and verdict are compared with the truth;
- under `samerun check` once more with a hazard planted: kind and line of the first cause are compared with the list.

Exit code 1 if anything was not as it should be. `make test-packages` makes an environment that has what they import.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest depends on it there

ROOT = Path(__file__).resolve().parents[1]
LISTED = ROOT / "tests" / "programs" / "public"
OFFLINE = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "WANDB_MODE": "disabled"}
RUN_LIMIT = 900.0
CHECK_LIMIT = 3600.0
ALLOWED_PLAIN_RUNS, ALLOWED_SECONDS = 2.6, 6.0
"""What `check` of a clean program may take on an idle machine."""


@dataclass(frozen=True)
class Insertion:
    """Lines of ours behind line `after` of a file; a program's own lines are neither changed nor removed."""

    file: str
    after: int
    text: str


@dataclass(frozen=True)
class PlantedHazard:
    """A hazard: the insertion that brings it (None: the program has it as published), and what must be named."""

    kind: str
    file: str
    line: int
    insertion: Insertion | None


@dataclass(frozen=True)
class PublicProgram:
    name: str
    repository: str
    commit: str
    files: list[str]
    folder: str
    command: list[str]
    prepare: list[str]
    seeding: list[Insertion]
    hazard: PlantedHazard
    ignore: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EndedRun:
    exit_code: int
    output: str
    error: str
    seconds: float


def read_list(path: Path) -> list[PublicProgram]:
    listed = tomllib.loads(path.read_text())
    sources = listed["source"]
    programs = []
    for name, entry in listed["program"].items():
        source = sources[entry["source"]]
        hazard = entry["hazard"]
        file = hazard.get("file", f"{entry['folder']}/{entry['command'][0]}".removeprefix("./"))
        planted = Insertion(file, hazard["after"], hazard["text"]) if "text" in hazard else None
        line = hazard["line"] if planted is None else planted.after + hazard.get("nth", 1)
        programs.append(
            PublicProgram(
                name,
                source["repository"],
                source["commit"],
                source.get("files", []) + entry.get("files", []),
                entry["folder"],
                entry["command"],
                entry.get("prepare", []),
                [Insertion(**one) for one in entry.get("seeding", [])],
                PlantedHazard(hazard["kind"], file, line, planted),
                entry.get("ignore", []),
                entry.get("environment", {}),
            )
        )
    return programs


def clone_repository(program: PublicProgram, clones: Path) -> Path:
    """The bare clone of the program's repository, made when it is not there."""
    owner, name = program.repository.rstrip("/").split("/")[-2:]
    folder = clones / f"{owner}+{name}"
    if not folder.exists():
        clones.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", "--bare", program.repository, str(folder)], check=True)
    return folder


def unpack_program(program: PublicProgram, clones: Path, folder: Path, *insertions: Insertion) -> Path:
    """Unpack the program's files, insert lines, prepare its data; the folder that it is started in."""
    archive = ["git", "-C", str(clone_repository(program, clones)), "archive", program.commit, "--", *program.files]
    folder.mkdir(parents=True)
    tar = subprocess.run(archive, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x"], input=tar, cwd=folder, check=True)
    by_line = sorted([*program.seeding, *insertions], key=lambda one: one.after, reverse=True)
    for one in by_line:  # from the end, so that numbers of lines stay those of the published file
        path = folder / one.file
        lines = path.read_text().splitlines(keepends=True)
        lines[one.after : one.after] = [line + "\n" for line in one.text.splitlines()]
        path.write_text("".join(lines))
    started_in = folder / program.folder
    for preparation in program.prepare:
        words = [sys.executable, str(LISTED / "prepare.py"), *preparation.split()]
        if preparation.startswith("run "):
            words = [sys.executable, *preparation.split()[1:]]
        subprocess.run(words, cwd=started_in, check=True, capture_output=True, env=make_environment(program))
    return started_in


def make_environment(program: PublicProgram, **more: str) -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", **os.environ, **OFFLINE, **program.environment, **more}


def run_command(words: list[str], folder: Path, variables: dict[str, str], limit: float) -> EndedRun:
    began = time.monotonic()
    done = subprocess.run(
        words,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
        errors="replace",
    )
    return EndedRun(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def mask_times(program: PublicProgram, text: str) -> str:
    for pattern in program.ignore:
        text = re.sub(pattern, "", text)
    return text


def run_alone(program: PublicProgram, folder: Path, at: str) -> tuple[EndedRun, str]:
    digests = folder.parent / f"{folder.name}-{at}.digests"
    words = [sys.executable, str(LISTED / "digest_steps.py"), *program.command]
    ended = run_command(words, folder, make_environment(program, DIGEST_STEPS=str(digests)), RUN_LIMIT)
    return ended, digests.read_text() if digests.exists() else ""


def run_check(program: PublicProgram, folder: Path, saved: Path) -> tuple[EndedRun, dict[str, Any]]:
    words = [sys.executable, "-m", "samerun", "check", "--quiet", "--json", "-", "--save", str(saved), *program.command]
    ended = run_command(words, folder, make_environment(program), CHECK_LIMIT)
    try:
        return ended, json.loads(ended.output)
    except ValueError:
        return ended, {"verdict": f"no report: {ended.error[-600:]}", "runs": [], "cause": None}


def read_outputs(saved: Path) -> list[str]:
    return [path.read_text(errors="replace") for path in sorted(saved.rglob("stdout"))]


def examine_clean(program: PublicProgram, clones: Path, scratch: Path) -> dict[str, Any]:
    """The program as it is published, seeded where it does not seed itself."""
    folder = unpack_program(program, clones, scratch / "alone")
    first, first_digests = run_alone(program, folder, "first")
    second, second_digests = run_alone(program, folder, "second")
    outputs = [mask_times(program, one.output) for one in (first, second)]
    same = (outputs[0], first_digests, first.exit_code) == (outputs[1], second_digests, second.exit_code)
    told: dict[str, Any] = {
        "exit_code": first.exit_code,
        "truth": "same" if same else "different",
        "steps": first_digests.count("\n"),
        "digest": hashlib.sha256((outputs[0] + first_digests).encode()).hexdigest()[:16],
        "seconds_alone": round((first.seconds + second.seconds) / 2, 1),
        "wrong": [],
    }
    if first.exit_code:
        told["wrong"].append(f"exit code {first.exit_code} alone: {first.error[-300:]}")
        return told

    saved = scratch / "saved"
    ended, report = run_check(program, unpack_program(program, clones, scratch / "checked"), saved)
    told |= {
        "verdict": report["verdict"],
        "runs": len(report["runs"]),
        "seconds_check": round(ended.seconds, 1),
        "within_time": ended.seconds <= ALLOWED_PLAIN_RUNS * told["seconds_alone"] + ALLOWED_SECONDS,
    }
    if report["verdict"] != told["truth"]:
        told["wrong"].append(f"verdict {report['verdict']}, truth {told['truth']}: {report['cause']}")
    others = {mask_times(program, one) for one in read_outputs(saved)} - set(outputs)
    if same and others:
        told["wrong"].append(f"another output under check: {find_difference(outputs[0], others.pop())}")

    receipt = scratch / "receipt.json"
    folder = unpack_program(program, clones, scratch / "receipt")
    words = [sys.executable, "-m", "samerun", "run", "--quiet", "--level", "warn", "--receipt", str(receipt)]
    watched = run_command([*words, *program.command], folder, make_environment(program), RUN_LIMIT)
    if watched.exit_code != first.exit_code:
        told["wrong"].append(f"exit code {watched.exit_code} under run --receipt: {watched.error[-300:]}")
    elif same and mask_times(program, watched.output) != outputs[0]:
        difference = find_difference(outputs[0], mask_times(program, watched.output))
        told["wrong"].append(f"another output under run --receipt: {difference}")
    if not receipt.exists():
        told["wrong"].append("no receipt")
    return told


def find_difference(one: str, other: str) -> str:
    for number, (a, b) in enumerate(zip(one.splitlines(), other.splitlines(), strict=False), 1):
        if a != b:
            return f"line {number}: {a[:100]!r}, {b[:100]!r}"
    return f"{len(one.splitlines())} lines, {len(other.splitlines())} lines"


def examine_hazard(program: PublicProgram, clones: Path, scratch: Path) -> dict[str, Any]:
    """The program with one hazard: planted, or its own where it seeds nothing."""
    hazard = program.hazard
    if hazard.insertion is not None:
        folder = unpack_program(program, clones, scratch / "hazard", hazard.insertion)
    else:
        unseeded = PublicProgram(**{**program.__dict__, "seeding": []})
        folder = unpack_program(unseeded, clones, scratch / "hazard")
    ended, report = run_check(program, folder, scratch / "saved-hazard")
    cause = report["cause"] or {}
    named = (cause.get("kind"), cause.get("line"), Path(cause.get("file") or "").name)
    told: dict[str, Any] = {
        "hazard": f"{hazard.kind} {Path(hazard.file).name}:{hazard.line}",
        "hazard_verdict": report["verdict"],
        "hazard_named": f"{named[0]} {named[2]}:{named[1]}",
        "hazard_certain": cause.get("certain"),
        "hazard_runs": len(report["runs"]),
        "hazard_seconds": round(ended.seconds, 1),
        "wrong": [],
    }
    if report["verdict"] != "different":
        told["wrong"].append(f"the hazard was missed: {report['verdict']}")
    elif named != (hazard.kind, hazard.line, Path(hazard.file).name):
        told["wrong"].append(f"wanted {told['hazard']}, named {told['hazard_named']}")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs of the list; none: all")
    parser.add_argument("--clones", type=Path, default=Path.home() / ".cache" / "public-programs")
    parser.add_argument("--results", type=Path, help="append one JSON object a program to this file")
    parser.add_argument("--clean", action="store_true", help="leave out the planted hazards")
    parser.add_argument("--hazards", action="store_true", help="the planted hazards alone")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folders, and print where they are")
    chosen = parser.parse_args()
    programs = read_list(LISTED / "programs.toml")
    unknown = set(chosen.names) - {program.name for program in programs}
    if unknown:
        parser.error(f"not in the list: {', '.join(sorted(unknown))}")
    failures = 0
    for program in programs:
        if chosen.names and program.name not in chosen.names:
            continue
        scratch = Path(tempfile.mkdtemp(prefix=f"{program.name}-"))
        told: dict[str, Any] = {"program": program.name}
        wrong: list[str] = []
        parts = [] if chosen.hazards else [examine_clean]
        parts += [] if chosen.clean else [examine_hazard]
        for examine in parts:
            try:
                found = examine(program, chosen.clones, scratch)
            except (subprocess.SubprocessError, OSError) as error:
                found = {"wrong": [f"{type(error).__name__}: {error} {getattr(error, 'stderr', b'') or b''!r}"[:600]]}
            wrong += found.pop("wrong")
            told |= found
        told["wrong"] = wrong
        failures += bool(wrong)
        print(json.dumps(told), flush=True)
        if chosen.results:
            with open(chosen.results, "a") as file:
                file.write(json.dumps(told) + "\n")
        if chosen.keep:
            print(scratch)
        else:
            shutil.rmtree(scratch)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
