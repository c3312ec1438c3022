"""How long runs of many ranks take to be compared and listed, and how much memory: 1,024 ranks, simulated from 4.

    python benchmarks/bench_many_ranks.py [--ranks 1024] [--steps 30]

Four ranks are recorded (`samerun run --trace ops`): data parallel over all, and collectives over pairs. Their traces
are multiplied, each with data of its own; run B differs at one operator of one rank in the middle, and on the others
behind the next collective of all. Each command runs in a process of its own and must name that operator.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from result_tables import Results, ResultTable, add_json_option

from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE, Trace

RECORDED = 4
SHARED_LEAVES = ("params", "grads", "buffers", "optimizer")
"""What data parallel ranks have alike."""


def train(steps: int) -> None:
    """The program that is recorded."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.GELU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(8, 32, generator=data)
        dist.all_reduce(x, group=pairs[rank // 2])
        optimizer.zero_grad()
        torch.nn.functional.dropout(model(x), 0.1).pow(2).mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


class Change(NamedTuple):
    """Run B: from this event on, of the recorded rank that `rank` is made of, its values are others."""

    rank: int
    event: int
    reaches: int
    """The collective of all, by its number, with which the others get it."""


def choose_change(folder: Path, ranks: int) -> Change:
    """The last operator of a forward in the middle of the run, on a rank in the middle."""
    rank = ranks // 2 + 5
    trace = Trace(folder / f"rank{rank % RECORDED}.trace")
    events = trace.read_all_events()
    steps = np.flatnonzero(events["kind"] == f.STEP)
    world = find_world_collectives(trace, events)
    number = int(np.searchsorted(world, steps[len(steps) // 2]))
    forward = (events["kind"] == f.OPERATOR) & ((events["flags"] & f.PHASE_MASK) == f.FORWARD)
    return Change(rank, int(np.flatnonzero(forward[: world[number]])[-1]), number)


def find_world_collectives(trace: Trace, events: Any) -> Any:
    text = next(number for number, text in enumerate(trace.strings) if text.endswith(f" of 0-{RECORDED - 1}"))
    return np.flatnonzero((events["kind"] == f.COLLECTIVE) & (events["aux"] == text))


def multiply(source: Path, target: Path, ranks: int, change: Change | None) -> None:
    """Traces of so many ranks, with the blocks that the recorded ones have."""
    target.mkdir()
    recorded = [((source / f"rank{n}.trace").read_bytes(), Trace(source / f"rank{n}.trace")) for n in range(RECORDED)]
    for rank in range(ranks):
        raw, trace = recorded[rank % RECORDED]
        begin: tuple[int, int] | None = None
        if change is not None:
            events = trace.read_all_events()
            at = int(find_world_collectives(trace, events)[change.reaches])
            steps = np.flatnonzero(events["kind"] == f.STEP)
            next_step = int(steps[np.searchsorted(steps, at)])
            begin = (change.event, change.event) if rank == change.rank else (at + 2, next_step)
        shared = [number for number, text in enumerate(trace.strings) if text in SHARED_LEAVES]
        (target / f"rank{rank}.trace").write_bytes(make_trace(raw, rank, ranks, begin, shared))


def make_trace(raw: bytes, rank: int, ranks: int, begin: tuple[int, int] | None, shared_leaves: list[int]) -> bytes:
    """A trace in which values differ from an event on, and what the rank has for itself from another one on: the loss
    was computed before the gradients were exchanged."""
    role = f"rank{rank}".encode()
    head = raw[:8] + struct.pack("<II", f.VERSION, len(role)) + role.ljust(f.ROLE_BYTES, b"\0")
    parts = [head + struct.pack("<Q", 10000 + rank) + bytes(f.STATUS_BYTES)]
    own = np.uint64(rank * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    at, count = f.HEADER_BYTES, 0
    while at < len(raw):
        tag, entries, length = f.BLOCK.unpack_from(raw, at)
        payload = raw[at + f.BLOCK.size : at + f.BLOCK.size + length]
        at += f.BLOCK.size + length
        if tag == f.STRINGS:
            payload = rename_groups(payload, rank, ranks)
        elif tag == f.EVENTS:
            events = np.frombuffer(payload, EVENT_DTYPE).copy()
            kind = events["kind"]
            mine = (kind == f.OPERATOR) | ((kind == f.LEAF) & ~np.isin(events["name"], shared_leaves))
            events["out0"][mine & (events["out0"] != 0)] ^= own
            events["inputs"][kind == f.OPERATOR] ^= own
            if begin is not None:
                alike = np.isin(events["name"], shared_leaves) | (kind == f.OPERATOR)
                late = np.arange(count, count + entries) >= np.where(alike, *begin)
                late &= (kind == f.OPERATOR) | (kind == f.LEAF)
                events["out1"][late] ^= np.uint64(1)
            payload, count = events.tobytes(), count + entries
        parts.append(f.BLOCK.pack(tag, entries, len(payload)) + payload)
    return b"".join(parts)


def rename_groups(payload: bytes, rank: int, ranks: int) -> bytes:
    """The strings of a block, with the process groups of the ranks that there are now."""
    found, at = [], 0
    while at < len(payload):
        (length,) = struct.unpack_from("<I", payload, at)
        text = payload[at + 4 : at + 4 + length].decode("utf-8", "surrogateescape")
        at += 4 + length
        first = rank // RECORDED * RECORDED
        if group := re.fullmatch(r"(\w+) of (\d)-(\d)", text):
            name, low, high = group[1], int(group[2]), int(group[3])
            whole = (low, high) == (0, RECORDED - 1)
            text = f"{name} of {0 if whole else first + low}-{ranks - 1 if whole else first + high}"
        encoded = text.encode("utf-8", "surrogateescape")
        found.append(struct.pack("<I", len(encoded)) + encoded)
    return b"".join(found)


def write_receipt(path: Path, traces: Path) -> None:
    """The receipt of a run, made of its traces as `samerun run --receipt` makes it."""
    from samerun import __version__
    from samerun.control.determinism.survey import collect_facts_outside_program
    from samerun.record.receipt import receipt_file
    from samerun.record.receipt.assemble import assemble_receipt, build_sections_of_traces
    from samerun.record.receipt.code_version import read_code_version
    from samerun.record.receipt.watched_run import describe_circumstances

    sections, wrong = build_sections_of_traces(traces)
    facts = collect_facts_outside_program()
    of_rank = {one.pid: {**facts, "variables": {**facts["variables"], "RANK": one.role[4:]}} for one in sections}
    made = assemble_receipt(
        version=__version__, command={"form": "module", "words": ["torch.distributed.run", "train.py"]},
        held_settings=None, ending={"exit_code": 0, "signal": None},
        code=read_code_version(Path(__file__).parent),
        sections=sections, read_errors=wrong, facts=of_rank, fallback_facts=facts,
        circumstances=describe_circumstances(time.time()),
    )  # fmt: skip
    receipt_file.write(path, made)


def measure(table: ResultTable, name: str, words: list[str], codes: tuple[int, ...] = (0,)) -> str:
    """Run a command; a row with its seconds and its peak of memory. Returns what it wrote."""
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    written = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) in codes, written
    table.add(name, time.perf_counter() - begin, used.ru_maxrss / (1 << 20))
    return written


def require_named(told: str, change: Change, by_operator: bool) -> None:
    first = json.loads(told)["first_difference"]
    where = first["operator"] if by_operator else first
    assert (where["process"], where["also_in"]) == (f"rank{change.rank}", []), where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="where the traces are written, instead of a temporary folder")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--receipt", nargs=2, type=Path, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.train:
        train(options.steps)
        return
    if options.receipt:
        write_receipt(*options.receipt)
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        program = [__file__, "--train", "--steps", str(options.steps)]
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(RECORDED), *program]
        run = [sys.executable, "-m", "samerun", "run", "--quiet", "--trace", "ops", "--receipt", f"{folder}/four.json"]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        subprocess.run([*run, *launch], check=True, env=environment)
        (source,) = folder.glob("four.json.*.traces")
        change = choose_change(source, options.ranks)
        multiply(source, folder / "a", options.ranks, None)
        multiply(source, folder / "b", options.ranks, change)
        shutil.rmtree(source)
        runs = folder / "runs"
        runs.mkdir()
        with Results(options.json) as results:
            count = sum(Trace(path).count for path in (folder / "a").glob("*.trace"))
            title = (
                f"{options.ranks:,} ranks of {options.steps} steps, {count:,} events a run, at most 1,024 open files"
            )
            table = results.table(title, {"": "", "s": ".1f", "peak memory, GiB": ".2f"})
            samerun: Callable[..., list[str]] = lambda *words: [sys.executable, "-m", "samerun", *words]  # noqa: E731
            for each in "ab":
                make = [sys.executable, __file__, "--receipt", f"{runs}/{each}.json", f"{folder}/{each}"]
                measure(table, f"make the receipt of run {each}", make)
            told = measure(
                table,
                "samerun diff of the receipts",
                samerun("diff", "--json", "-", f"{runs}/a.json", f"{runs}/b.json"),
                (1,),
            )
            require_named(told, change, by_operator=False)
            told = measure(
                table, "samerun diff of the traces", samerun("diff", "--json", "-", f"{folder}/a", f"{folder}/b"), (1,)
            )
            require_named(told, change, by_operator=True)
            same = samerun("diff", "--quiet", f"{folder}/a", f"{folder}/a")
            measure(table, "samerun diff of equal traces", same)
            measure(table, "samerun log", samerun("log", str(runs)))


if __name__ == "__main__":
    main()
