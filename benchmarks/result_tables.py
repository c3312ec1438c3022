"""Tables of measurements: shown while they are made, kept as JSON, compared, and written into RESULTS.md.

    python benchmarks/bench_start.py --json benchmarks/results/start.json      measure, and keep
    python benchmarks/result_tables.py compare OLD.json NEW.json               ratios of two runs, row by row
    python benchmarks/result_tables.py page [--check]                          RESULTS.md from benchmarks/results

A file is one run: which machine, when, which command, and its tables. Two runs on different days or machines have
different clocks: the ratio columns of a table, which were measured in turns in one run, are what can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "RESULTS.md"
BLOCK = re.compile(r"<!-- (results/[\w-]+\.json) -->\n.*?<!-- end -->\n", re.DOTALL)
Cell = str | float | int | None
GPU_FACTS = ("gpu", "driver", "cuda", "cudnn", "native code", "missing packages", "source")
"""Of the machine, in the records of tools/gpu.py."""


class ResultTable:
    """One table; the first column names the rows. `columns`: name to format, such as {"ratio": ".2f"}."""

    def __init__(self, title: str, columns: dict[str, str]) -> None:
        self.title, self.columns = title, columns
        self.rows: list[list[Cell]] = []
        print("\n" + "\n".join(self.header()), flush=True)

    def add(self, *cells: Cell) -> None:
        """Add a row, and show it."""
        assert len(cells) == len(self.columns), f"{self.title}: {len(cells)} cells for {len(self.columns)} columns"
        self.rows.append(list(cells))
        print(format_row(cells, list(self.columns.values())), flush=True)

    def header(self) -> list[str]:
        names = list(self.columns)
        return [f"**{self.title}**", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


class Results:
    """The tables of one run of a script, written to a file when the block ends without an error.

    with Results(options.json) as results:
        table = results.table("a training step", {"model": "", "ms": ".1f", "ratio": ".2f"})
        table.add("cnn", 88.0, 1.16)
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.tables: list[ResultTable] = []
        self.load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None

    def __enter__(self) -> Results:
        return self

    def table(self, title: str, columns: dict[str, str]) -> ResultTable:
        self.tables.append(ResultTable(title, columns))
        return self.tables[-1]

    def __exit__(self, kind: object, *_: object) -> None:
        if self.path is None or kind is not None:
            return
        words = [word for word in sys.argv[1:] if word != "--json" and word != str(self.path)]
        record = {
            "benchmark": Path(sys.argv[0]).name,
            "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words]),
            "date": datetime.now(timezone.utc).date().isoformat(),
            "machine": describe_machine(self.load),
            "tables": [{"title": t.title, "columns": t.columns, "rows": t.rows} for t in self.tables],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="also keep the tables here, for result_tables.py")


def describe_machine(load: float | None) -> dict[str, str | int | float | None]:
    """Facts that the figures depend on, and the load when the run began: above 0.5 a core was not idle."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "instructions": next((name for name in ("avx512f", "avx2") if name in flags), platform.machine()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": None if load is None else round(load, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": installed_version("numpy"),
        "torch": installed_version("torch"),
    }


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def format_row(cells: Sequence[Cell], formats: Sequence[str]) -> str:
    return f"| {' | '.join(map(format_cell, cells, formats))} |"


def format_cell(cell: Cell, spec: str) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else format(cell, spec)


def render_record(record: dict[str, Any]) -> str:
    """The record as Markdown: the machine and the command, then the tables."""
    machine = record["machine"]
    told = [machine["processor"], machine["instructions"], f"{machine['cores']} cores", f"load {machine['load']}"]
    told += [f"{name} {machine[name]}" for name in ("python", "torch", "numpy") if machine[name]]
    told += [f"{name} {machine[name]}" for name in GPU_FACTS if machine.get(name)]
    lines = [f"`{record['command']}`, {record['date']}: {', '.join(map(str, told))}.", ""]
    for table in record["tables"]:
        if not table["rows"]:
            lines += [f"**{table['title']}**: none.", ""]
            continue
        names, formats = list(table["columns"]), list(table["columns"].values())
        lines += [f"**{table['title']}**", "", f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
        lines += [format_row(row, formats) for row in table["rows"]]
        lines.append("")
    return "\n".join(lines)


def write_page(check: bool) -> int:
    """Put each block's record into the page; with `check`, only say (1) that the page is another."""
    before = PAGE.read_text(encoding="utf-8")

    def fill(block: re.Match[str]) -> str:
        record = json.loads((HERE / block[1]).read_text(encoding="utf-8"))
        return f"<!-- {block[1]} -->\n{render_record(record)}<!-- end -->\n"

    after = BLOCK.sub(fill, before)
    if check:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


def compare_records(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Every number of rows and columns that both runs have: old, new and new / old, as Markdown tables."""
    lines = [f"old: {old['date']}, {old['machine']}", "", f"new: {new['date']}, {new['machine']}"]
    others = {table["title"]: table for table in new["tables"]}
    for table in old["tables"]:
        other = others.get(table["title"])
        if other is None:
            continue
        names = [name for name in list(table["columns"])[1:] if name in other["columns"]]
        places = {name: (list(table["columns"]).index(name), list(other["columns"]).index(name)) for name in names}
        again = {row[0]: row for row in other["rows"]}
        lines += ["", f"**{table['title']}**", "", "| row | column | old | new | new / old |", "|---|---|---|---|---|"]
        for row in table["rows"]:
            for name, (here, there) in places.items():
                a, b = row[here], again.get(row[0], [None] * len(other["columns"]))[there]
                if isinstance(a, int | float) and isinstance(b, int | float):
                    ratio = f"{b / a:.3f}" if a else ""
                    spec = table["columns"][name]
                    lines.append(f"| {row[0]} | {name} | {format(a, spec)} | {format(b, spec)} | {ratio} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser("compare", help="ratios of two runs")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    page = commands.add_parser("page", help="write RESULTS.md")
    page.add_argument("--check", action="store_true", help="only exit with 1 where it is not what the files say")
    options = parser.parse_args()
    if options.command == "page":
        return write_page(options.check)
    try:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (options.old, options.new))
    except (OSError, ValueError) as error:
        print(f"result_tables: {error}", file=sys.stderr)
        return 2
    print(compare_records(old, new))
    return 0


if __name__ == "__main__":
    sys.exit(main())
