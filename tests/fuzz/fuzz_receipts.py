"""Feed the readers of receipts with what a fuzzer makes: each reads it, or refuses it with a SamerunError.

    python tests/fuzz/fuzz_receipts.py [--seconds 300] [--corpus FOLDER]    with atheris: guided by coverage
    python tests/fuzz/fuzz_receipts.py --plain 1000                         without: seeded changes of whole receipts

A failure ends the script with its traceback; atheris leaves the input in a file `crash-...`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parents[1] / "src")]

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["samerun", "json", "jsonschema"]) if atheris else contextlib.nullcontext():
    from sample_receipts import made, section

    from samerun.base.errors import SamerunError
    from samerun.record.receipt import receipt_file, receipt_json, recorded_command, step_table
    from samerun.record.receipt.assemble import NewReceipt, with_reproducible_digest
    from samerun.record.receipt.diff import describe_first_difference, diff_runs, load_run
    from samerun.record.receipt.environment_diff import list_environment_differences_here
    from samerun.record.receipt.receipt_summary import parse_summary
    from samerun.report import receipts as shown_receipts

GOOD = made(section(marks=[{"name": "m", "step": 2, "digest": "0" * 32}]), section("rank0"), section("rank1"))
LONG = made(section(steps=step_table.MAX_INLINE_ROWS + 1))
SIGNED = {**GOOD.receipt, "signature": {"algorithm": "ed25519", "public_key": "0" * 64, "signature": "0" * 128}}
SEEDS = [
    receipt_json.encode_with_sorted_keys_and_indent(each).encode() for each in (GOOD.receipt, LONG.receipt, SIGNED)
]
PIECES = [b"\xff", b"1" * 30, *b'" { } [ ] , : null -1 1e9 \\ \\ud800 ../'.split()]
QUIET = open(os.devnull, "w")  # noqa: SIM115


def read_all(data: bytes, folder: Path) -> None:
    """Everything that reads a receipt, on these bytes. The digest is made to fit, as whoever writes one can."""
    from rich.console import Console

    entry = parse_summary("x.json", 0, data)
    list(shown_receipts.format_receipt_log([vars(entry)]))
    try:
        value = receipt_json.parse_untrusted_json(data, "x.json")
    except SamerunError:
        return
    if isinstance(value, dict):
        with contextlib.suppress(RecursionError):
            data = receipt_json.encode_with_sorted_keys_and_indent(with_reproducible_digest(value)).encode()
    path = folder / "hostile.json"
    path.write_bytes(data)
    try:
        side = load_run(path)
        assert side.receipt is not None
        step_table.require_rows_match_trees(side.tables)
        for answer in (diff_runs(load_run(folder / "good.json"), side), diff_runs(side, side)):
            describe_first_difference(answer)
            shown_receipts.show_diff(answer, Console(file=QUIET))
    except SamerunError:
        return
    for read in (
        lambda receipt: recorded_command.resolve_recorded_command(receipt["command"]),
        lambda receipt: recorded_command.format_command_line_truncating_words(receipt["command"]),
        lambda receipt: receipt_file.verify_signature_of_digest(receipt),
        lambda receipt: list_environment_differences_here(receipt, HERE_NOW),
    ):
        with contextlib.suppress(SamerunError):
            read(side.receipt)


HERE_NOW: dict[str, Any] = {key: GOOD.receipt[key] for key in ("machine", "packages", "variables")}


def changed(data: bytes, chance: random.Random) -> bytes:
    """Some bytes taken out, put in or doubled; or, of a value, some part replaced by another."""
    if chance.random() < 0.5:
        value = json.loads(data)
        for _ in range(chance.randint(1, 3)):
            _replace_some_part(value, value, chance)
        return json.dumps(value).encode()
    raw = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
        end = min(end, at + chance.choice([0, 1, 40]))
        raw[at:end] = chance.choice([*PIECES, b"", bytes(raw[at:end]) * 2])
    return bytes(raw)


def _replace_some_part(whole: Any, value: Any, chance: random.Random) -> None:
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(value[key], (dict, list)) and value[key] and chance.random() < 0.8:
            value = value[key]
            continue
        texts = ["", "\x1b[2J", "\ud800", "../../x", "/etc/passwd", "main", "a\0b", "0" * 32, "0" * 64, "x" * 5000]
        numbers = [0, 1, -1, 4, 6, 1 << 31, 1 << 62, 1e300, True]
        kinds = [None, [], {}, [[]], {"": {}}, *texts, *numbers]
        for kind, alike in ((str, texts), (int, numbers)):  # what keeps to the schema goes further
            if isinstance(value[key], kind) and chance.random() < 0.7:
                value[key] = chance.choice(alike)
                return
        part = whole[chance.choice(list(whole) if isinstance(whole, dict) else range(len(whole)))]
        other = chance.choice([*kinds, json.loads(json.dumps(part))])
        if chance.random() < 0.2:
            del value[key]
        else:
            value[key] = other
        return


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """For atheris: half of the time its own changes of bytes, which alone leave hardly any JSON."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        try:
            return changed(data, chance)[:most]
        except (ValueError, IndexError, KeyError, TypeError, RecursionError):
            pass  # no JSON any more
    return bytes(atheris.Mutate(data, most))


def prepare(folder: Path) -> None:
    """A receipt to compare with, and the steps of the long one beside every hostile one."""
    (folder / "good.json").write_bytes(SEEDS[0])
    _put_steps(folder / "hostile.json", LONG)
    os.chdir(folder)  # where scripts that a receipt names are looked for


def _put_steps(path: Path, long: NewReceipt) -> None:
    assert long.steps_file_content is not None
    step_table.steps_file_path(path, long.receipt["digest"]).write_bytes(long.steps_file_content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path, help="inputs to begin with; what is new is put there")
    parser.add_argument("--plain", type=int, metavar="N", help="so many inputs without atheris")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.plain is None and atheris is None:
        sys.exit("atheris is not installed: pip install atheris, or use --plain N")
    begun_in = Path.cwd()
    corpus = options.corpus.resolve() if options.corpus is not None else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        if options.plain is not None:
            chance = random.Random(options.seed)
            for seed in SEEDS:
                read_all(seed, folder)
            for _ in range(options.plain):
                read_all(changed(chance.choice(SEEDS), chance), folder)
            print(f"{options.plain} inputs were read or refused")
            return
        if corpus is None:
            corpus = folder / "corpus"
        corpus.mkdir(exist_ok=True)
        for number, seed in enumerate(SEEDS):
            (corpus / f"seed-{number}").write_bytes(seed)
        words = [f"-artifact_prefix={begun_in}{os.sep}", f"-max_total_time={options.seconds}"]
        words += [f"-seed={options.seed + 1}", "-max_len=100000", "-timeout=20"]
        words = [sys.argv[0], *words, str(corpus)]
        atheris.Setup(words, lambda data: read_all(data, folder), custom_mutator=mutated)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
