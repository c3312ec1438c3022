"""Check the programs of tests/programs/neutral: verdict and line of each switch, and how many are right.

python tools/neutral_programs.py [NAME...]    those whose names begin so; all without

The first line of a program is a JSON comment: `switches`, each a list of what `--neutral` takes (and `--against`);
`wrong`: the line marked with `# WRONG` is not neutral, unless CLEAN=1 is set, under which every switch must be.
Those of the folder `compiled` are wrong inside of a compiled region: `nodes`, any of which may be named ([]: none is),
`stage`, `origin` (a bug of torch, or planted in the program), and the releases of `torch` in which it shows.
Runs are forks of one process that has loaded torch already, so that a check takes seconds.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from samerun.base.records import NeutralResult
from samerun.check.execution.runner import PlannedRun, Run, Runner
from samerun.check.neutral.neutral import check_neutrality
from samerun.check.plan import RunPlan, parse_environment_and_arguments
from samerun.check.search.search import Search
from samerun.check.variations.neutral_switches import NeutralSwitch, make_own_switch, parse_neutral_option
from samerun.record.config import WatchConfig
from samerun.record.watching.start import start

PROGRAMS = Path(__file__).resolve().parents[1] / "tests/programs/neutral"
MARK = "# WRONG"
LINE_TOLERANCE = 2


class ForkingRunner(Runner):
    """Runs a Python script in a fork of this process: what a fresh process would do, without loading torch again."""

    def run(self, planned: PlannedRun) -> Run:
        plan, name = planned.plan, planned.name
        folder = self.folder / name
        folder.mkdir(parents=True)
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            run_in_child(plan.with_watch(folder=str(folder)), folder)
        _, status = os.waitpid(child, 0)
        return Run(name, planned.labels, os.waitstatus_to_exitcode(status), time.monotonic() - begin, folder, plan)


def run_in_child(plan: RunPlan, folder: Path) -> None:
    """Run the script as the main program under the recorder; never returns."""
    code = 1
    try:
        for stream, number in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(folder / stream, os.O_WRONLY | os.O_CREAT), number)
        os.environ.update(plan.environment)
        script = plan.command[1]
        sys.argv, sys.path[0] = list(plan.command[1:]), os.path.dirname(script)
        start(plan.watch)
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


@dataclass(frozen=True)
class NeutralCase:
    """One switch of one program, and what is true of it."""

    program: Path
    switch: NeutralSwitch
    label: str
    is_wrong: bool
    line: int
    environment: dict[str, str]
    nodes: tuple[str, ...] | None = None
    """Where it must be in a compiled region; None for what is not one."""
    stage: str = ""

    def check(self, folder: Path) -> NeutralResult:
        command = (sys.executable, str(self.program))
        plan = RunPlan(command, (self.program.name,), WatchConfig(folder=""), environment=self.environment)
        with closing(ForkingRunner(folder, None, lambda name, seconds, state: None)) as runner:
            report = check_neutrality(Search(runner, plan, (), ()), [self.switch])
        assert report.neutral is not None
        return report.neutral[0]

    def judge(self, result: NeutralResult) -> tuple[bool, bool]:
        """Whether the verdict is right, and the line (which counts only where there is one)."""
        if not self.is_wrong:
            return result.outcome in ("same", "rounding"), True
        near = os.path.basename(result.file) == self.program.name and abs(result.line - self.line) <= LINE_TOLERANCE
        return result.outcome == "wrong", near and self.is_right_in_region(result)

    def is_right_in_region(self, result: NeutralResult) -> bool:
        """Whether node and stage of a compiled region are right."""
        if self.nodes is None:
            return True
        region = result.region
        if region is None or region.stage != self.stage:
            return False
        return not (region.node or self.nodes) or region.node in self.nodes


def list_cases(names: list[str]) -> Iterator[NeutralCase]:
    """The cases of all programs whose names begin with one of `names`; of all without."""
    for program in sorted(PROGRAMS.rglob("*.py")):
        inside = program.relative_to(PROGRAMS).as_posix()
        if names and not (program.name.startswith(tuple(names)) or inside.startswith(tuple(names))):
            continue
        text = program.read_text(encoding="utf-8")
        head: dict[str, Any] = json.loads(text.splitlines()[0].lstrip("# "))
        if not is_torch_release(head.get("torch", "")):
            continue
        nodes = tuple(head["nodes"]) if "nodes" in head else None
        lines = [number for number, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith(MARK)]
        for environment in head.get("environments", [{}]):
            for words in head["switches"]:
                if len(words) == 2:
                    sides = (parse_environment_and_arguments("--neutral", each) for each in words)
                    switches = [make_own_switch(*sides)]
                else:
                    switches = parse_neutral_option(words[0])
                for switch in switches:
                    label = f"{program.stem} {' '.join(environment.values())} {' -> '.join(words)}"
                    case = NeutralCase(program, switch, label, False, 0, {**environment, "CLEAN": "1"})
                    if head.get("wrong"):
                        wrong = replace(case, is_wrong=True, line=lines[0], environment={**environment, "CLEAN": ""})
                        yield replace(wrong, nodes=nodes, stage=head.get("stage", ""))
                    yield case


def is_torch_release(wanted: str) -> bool:
    """Whether this torch is one of "2.13" or "2.11-2.13"; "" is any."""
    import torch

    first, _, last = wanted.partition("-")
    own, *ends = (
        tuple(int(part) for part in each.split(".")[:2]) for each in (torch.__version__, first or "0.0", last or first)
        if each
    )  # fmt: skip
    return not wanted or ends[0] <= own <= ends[-1]


def main(names: list[str]) -> int:
    # torch finds compiled code by the captured graph: that of a program with a decomposition or lowering of its own
    # would be taken for its clean twin. Kernels are found by their text.
    os.environ.update(TORCHINDUCTOR_AUTOGRAD_CACHE="0", TORCHINDUCTOR_FX_GRAPH_CACHE="0")
    import torch
    import torch._dynamo  # which every optimizer loads
    import torch.utils.checkpoint

    if any(case.nodes is not None for case in list_cases(names)):
        import torch._inductor.compile_fx

    torch.set_num_threads(1)
    right, lines, total = {True: 0, False: 0}, 0, {True: 0, False: 0}
    folder = tempfile.mkdtemp(prefix="samerun-neutral-")  # a TemporaryDirectory would be removed by a child that ends
    try:
        for number, case in enumerate(list_cases(names)):
            result = case.check(Path(folder) / str(number))
            if result.outcome == "skipped":
                continue
            verdict, line = case.judge(result)
            total[case.is_wrong] += 1
            right[case.is_wrong] += verdict
            lines += case.is_wrong and line
            told = f"{result.outcome} {result.file and os.path.basename(result.file)}:{result.line} {result.operator}"
            mark = "ok  " if verdict and line else "LINE" if verdict else "MISS"
            wanted = f"wrong at {case.line}" if case.is_wrong else "neutral"
            print(f"{mark} {case.label} [{wanted}]: {told}", flush=True)
            if case.nodes is not None and result.region is not None:
                print(f"     {' '.join(filter(None, map(str, vars(result.region).values())))}", flush=True)
            if mark != "ok  ":
                print(f"     {result.detail}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"wrong: {right[True]} of {total[True]} verdicts, {lines} lines; neutral: {right[False]} of {total[False]}")
    return int(right != total)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
