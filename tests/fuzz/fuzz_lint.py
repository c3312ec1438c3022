"""Generated and mutated sources: each is looked at, or refused with a problem; what is mended still parses.

python tests/fuzz/fuzz_lint.py [--count 20000] [--seed 0]
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
import warnings
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from fuzz_options import count_and_seed

from samerun.lint.file_linting import LintedFile, fix_text, lint_notebook, lint_text
from samerun.lint.table import RULES

TESTS = Path(__file__).resolve().parents[1]
PIECES = (
    "os.listdir(d)", "set(names)", "{w for w in words}", "np.random.default_rng()", "torch.empty(n, k)", "hash(name)",
    "random.shuffle(rows)", "time.time()", "sorted(x, key=id)", "self.files", "*rest", "**kw", "lambda x: x", "None",
    "(yield)", "await x", "x := y", "f'{x}'", "...", "[]", "{}", "d[:n]", "a if b else c", "not x", "as_completed(f)",
    "torch.manual_seed(seed or time.time())", "DataLoader(x, in_order=False)", "enumerate(set(a))", "-x", "'\\ud800'",
)  # fmt: skip
LINES = (
    "import numpy as np", "from torch import *", "import os.path as osp", "def f(self, seed=None):", "try:", "else:",
    "class A(Dataset):", "for x in os.listdir(d):", "while time.time() < end:", "if seed is None:", "return files",
    "with os.scandir(d) as it:", "global seed", "del x", "files.sort()", "x = y = z", "a, (b, *c) = f()", "yield x",
    "x: set = set()", "os.environ['PYTHONHASHSEED'] = '0'", "@property", "match x:", "    case {'a': 1, **r}:",
    "x += [1]", "# noqa",
)  # fmt: skip


@cache
def read_originals() -> tuple[str, ...]:
    """The programs of the zoo and the examples of the rules."""
    zoo = [path.read_text(encoding="utf-8") for path in sorted((TESTS / "zoo").glob("*.py"))]
    return (*zoo, *(text for rule in RULES for text in (rule.before, rule.after)))


def make_source(chance: random.Random) -> str:
    """A program, changed in a few places, or one of nothing but odd lines."""
    if chance.random() < 0.2:
        lines = [" " * 4 * chance.randrange(4) + chance.choice(LINES) for _ in range(chance.randrange(1, 30))]
    else:
        lines = chance.choice(read_originals()).split("\n")
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
            change_line(lines, chance)
    text = chance.choice(("\n", "\n", "\r\n", "\r")).join(lines)
    if chance.random() < 0.03:
        text += "x = " + chance.choice("([{-~") * chance.choice((50, 500, 50_000))
    if chance.random() < 0.03:
        text += "x = a" + chance.choice((".b", "[0]", "()", "+a")) * chance.choice((50, 900, 20_000))
    if chance.random() < 0.05:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice("\0\ufeff\f\x1b\u2028\ud800é") + text[at:]
    return text


def change_line(lines: list[str], chance: random.Random) -> None:
    """Drop, repeat, move, indent or rewrite a part of a line."""
    at = chance.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    kind = chance.randrange(12)
    if kind == 0:
        del lines[at]
        lines.append("")
    elif kind == 1:
        lines.insert(at, indent + lines[chance.randrange(len(lines))].lstrip())
    elif kind == 2:
        lines.insert(at, indent + chance.choice(LINES))
    elif kind == 3:
        lines[at] = "    " + lines[at]
    else:
        spots = [found.span() for found in re.finditer(r"\w+(?:\([^()]*\))?|\[[^\[\]]*\]", lines[at])]
        if spots:
            begin, end = chance.choice(spots)
            lines[at] = lines[at][:begin] + chance.choice(PIECES) + lines[at][end:]


NEED_SEED = {rule.code for rule in RULES if rule.needs_seed}


def _count_lasting(linted: LintedFile) -> int:
    """The findings that a seed, which is put in, cannot bring up."""
    return sum(one.code not in NEED_SEED for one in linted.findings)


def run_case(seed: int) -> bool:
    """Look at one source; returns whether it parsed. Raises what goes wrong inside."""
    chance = random.Random(seed)
    text = make_source(chance)
    linted = lint_text(text, "case.py", RULES)
    for one in linted.findings:
        assert one.line >= 1 and one.column >= 1, one
    if linted.findings:
        fixed, count = fix_text(text, linted, RULES)
        if count:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(fixed)
            again = lint_text(fixed, "case.py", RULES)
            assert _count_lasting(again) <= _count_lasting(linted), text
            assert len(again.findings) < len(linted.findings) or _count_lasting(again) < len(again.findings), text
            assert fix_text(fixed, again, RULES)[1] == 0 or len(again.findings) > 0, text
    if chance.random() < 0.1:
        cells = [{"cell_type": "code", "source": part} for part in text.split("\n\n")]
        lint_notebook(json.dumps({"cells": cells}).encode("utf-8", "surrogatepass"), "case.ipynb", RULES)
        lint_notebook(text.encode("utf-8", "surrogatepass"), "case.ipynb", RULES)
    return linted.problem is None


def main() -> None:
    count, seed = count_and_seed(__doc__ or "")
    parsed = 0
    for number in range(count):
        try:
            parsed += run_case(seed + number)
        except Exception:
            print(f"fails with --count 1 --seed {seed + number}", file=sys.stderr)
            raise
    print(f"{count} sources, {parsed} of them Python: none failed")


if __name__ == "__main__":
    main()
