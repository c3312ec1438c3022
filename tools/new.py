"""Begin a new member of a room: its file, its entry in the room's table, and a test that fails.

    python tools/new.py variation page_size
    python tools/new.py cause page_size
    python tools/new.py interceptor some_module
    python tools/new.py seed some_library
    python tools/new.py switch some_knob
    python tools/new.py operator some_operator
    python tools/new.py rule some_hazard

Exit code 2, and nothing written, for a name that is taken or is not an identifier.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINE = 110


@dataclass(frozen=True)
class MemberKind:
    """One room with a table. `exposed`: what a member's file calls its record; `record`: the record's class."""

    room: str
    table: str
    exposed: str
    record: str
    member: str
    test: str
    then: str

    @property
    def package(self) -> str:
        return "samerun." + self.room.replace("/", ".")


VARIATION = '''"""WHAT IS VARIED, in one line."""

from samerun.check.plan import RunPlan, Variation


def vary_or_pin_NAME(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary WHAT.

    What can go wrong: A PROGRAM THAT DEPENDS ON IT.
    """
    return plan


VARIATION = Variation("NAME", "environment", "CONTROL VALUE -> OTHER VALUE", vary_or_pin_NAME, "unknown")
'''

VARIATION_TEST = '''"""What the variation `NAME` must prove."""

import pytest

from samerun.check.plan import RunPlan
from samerun.check.variations.NAME import VARIATION
from samerun.check.variations.table import VARIATIONS
from samerun.record.config import WatchConfig


def test_it_stands_in_the_table() -> None:
    assert VARIATION in VARIATIONS


def test_it_pins_a_control_value_and_varies_it() -> None:
    plan = RunPlan(("python", "train.py"), ("train.py",), WatchConfig(folder=""))
    assert VARIATION.apply(plan, True) != VARIATION.apply(plan, False)


def test_a_program_that_leaks_only_this_is_caught_and_named() -> None:
    pytest.fail("write a program in tests/zoo that depends on NAME alone: exit code 1, and its cause is named")


def test_a_program_that_does_not_is_clean() -> None:
    pytest.fail("write its clean twin: exit code 0 under --vary NAME")


def test_words_are_filled_in() -> None:
    assert VARIATION.detail != "CONTROL VALUE -> OTHER VALUE" and VARIATION.cause != "unknown"
'''

CAUSE = '''"""THE CAUSE, in one line."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect


def find_NAME_suspects(situation: Situation) -> list[Suspect]:
    """Suspects of this kind. Pins, where it has some, let an experiment confirm it."""
    return []


CAUSE = Cause("PUBLIC", find_NAME_suspects, "WHAT TO CHANGE, IN ONE LINE", "WHY IT HAPPENS, IN A PARAGRAPH.")
'''

CAUSE_TEST = '''"""What the cause `PUBLIC` must prove."""

import pytest

from samerun.check.causes.NAME import CAUSE
from samerun.check.causes.table import CAUSES


def test_it_stands_in_the_table() -> None:
    assert CAUSE in CAUSES


def test_programs_with_this_cause_are_named() -> None:
    pytest.fail("write two programs in tests/zoo with this cause: cause.kind and cause.line are right in both")


def test_programs_without_it_are_not() -> None:
    pytest.fail("write a program with the same calls and no difference: exit code 0, and no suspect")


def test_words_are_filled_in() -> None:
    assert not CAUSE.fix.isupper() and not CAUSE.doc.isupper()
'''

INTERCEPTOR = '''"""THE SOURCE OF EVENTS, in one line."""

from __future__ import annotations

from typing import Any

from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, module: Any) -> None:
    """Wrap what is to be seen; `wrap_attribute` keeps names and documentation."""


# The second argument is the module whose loading brings the source; it is never imported for this.
INTERCEPTOR = Interceptor("PUBLIC", "NAME", install)
'''

INTERCEPTOR_TEST = '''"""What the interceptor `PUBLIC` must prove."""

import pytest

from samerun.record.watching.interceptors.NAME import INTERCEPTOR
from samerun.record.watching.interceptors.table import INTERCEPTORS


def test_it_stands_in_the_table() -> None:
    assert INTERCEPTOR in INTERCEPTORS


def test_events_are_recorded_with_the_line_of_the_user() -> None:
    pytest.fail("run a program that uses the source: its events stand in the trace, at the program's line")


def test_a_watched_program_computes_the_same() -> None:
    pytest.fail("run the program with and without watching: same output, same digests")


def test_a_failure_inside_never_reaches_the_program() -> None:
    pytest.fail("make the recording fail: the program goes on, the trace says why it stops")
'''

SEED = '''"""THE GENERATOR, in one line."""

from __future__ import annotations

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.random_source import RandomSource, State


def _can_seed() -> bool:
    return find_imported_module("NAME", "seed", "get_state", "set_state") is not None


def _seed(seed: int) -> None:
    get_imported_module("NAME").seed(seed)


def _get_state() -> State:
    return get_imported_module("NAME").get_state()


def _set_state(state: State) -> None:
    get_imported_module("NAME").set_state(state)


SOURCE = RandomSource("NAME", "NAME", _can_seed, _seed, _get_state, _set_state)
'''

SEED_TEST = '''"""What the source `NAME` must prove."""

import sys

import pytest

from samerun.control.seeds.NAME import SOURCE
from samerun.control.seeds.table import SOURCES


def test_it_stands_in_the_table() -> None:
    assert SOURCE in SOURCES


def test_it_never_imports_its_library() -> None:
    before = set(sys.modules)
    SOURCE.available()
    assert set(sys.modules) == before


def test_draw_restore_draw_is_the_same() -> None:
    pytest.fail("seed, take the state, draw, restore it, draw: the same numbers (see tests/control/test_seeds.py)")


def test_another_seed_draws_otherwise() -> None:
    pytest.fail("two seeds that differ only in their high bits draw other numbers")
'''

SWITCH = '''"""THE SETTING, in one line."""

from __future__ import annotations

from samerun.control.switches.switch import make_torch_flag_switch, want_true

# A flag of torch's C module. Anything else fills in a `Switch` of its own (switch.py).
SWITCH = make_torch_flag_switch(
    "NAME",
    "WHAT IT DOES, IN ONE SENTENCE.",
    "WHY THIS VALUE, AND WHAT IS KNOWN ABOUT IT.",
    ("_get_NAME", "_set_NAME"),
    want_true,
)
'''

SWITCH_TEST = '''"""What the switch `NAME` must prove."""

import sys

import pytest

from samerun.control.switches.NAME import SWITCH
from samerun.control.switches.table import SWITCHES


def test_it_stands_in_the_table() -> None:
    assert SWITCH in SWITCHES


def test_looking_imports_nothing() -> None:
    before = set(sys.modules)
    SWITCH.available()
    assert set(sys.modules) == before


def test_it_is_set_read_back_and_given_back() -> None:
    pytest.fail("enter in OWN of tests/control/test_switches.py how a program sets NAME itself")


def test_it_is_needed() -> None:
    pytest.fail("write a program whose bits depend on NAME alone, and are the same under deterministic()")


def test_words_are_filled_in() -> None:
    assert not SWITCH.what.isupper() and not SWITCH.why.isupper()
'''

OPERATOR = '''"""THE OPERATOR, in one line."""

from __future__ import annotations

from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel


def compute(self: Tensor) -> Tensor:
    """What the functional overload takes and gives; of operators that write every cell once."""
    return self


OPERATOR = DeterministicOperator(
    "NAME",
    (),
    "WHAT TORCH REFUSES OF IT, IN ONE SENTENCE.",
    "HOW IT IS COMPUTED.",
    "ITS COST IN TIME AND MEMORY.",
    (Kernel(compute, ("NAME", "NAME.out")),),
)
'''

OPERATOR_TEST = '''"""What the operator `NAME` must prove."""

import pytest

from samerun.control.deterministic_kernels.NAME import OPERATOR
from samerun.control.deterministic_kernels.table import OPERATORS


def test_it_stands_in_the_table() -> None:
    assert OPERATOR in OPERATORS


def test_it_is_that_of_torch_and_repeats() -> None:
    pytest.fail("enter cases in tests/support/operator_cases.py: crowded, odd, empty, strided, with NaN")


def test_its_gradient() -> None:
    pytest.fail("enter in GRADIENTS of tests/control/test_operators_table.py what has one, or say why there is none")


def test_on_a_device() -> None:
    pytest.fail("enter a program in tests/zoo_cuda, and a line in benchmarks/bench_cuda.py")


def test_words_are_filled_in() -> None:
    assert not any(words.isupper() for words in (OPERATOR.what, OPERATOR.method, OPERATOR.cost))
'''

RULE = '''"""THE HAZARD, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from samerun.lint.rule import Hit, Rule
from samerun.lint.source_index import SourceIndex


def find_NAME(index: SourceIndex) -> Iterator[Hit]:
    """WHAT IS REPORTED, AND WHAT LOOKS LIKE IT AND IS NOT."""
    for call in index.calls_of("MODULE.NAME"):
        yield Hit(call, "WHAT STANDS THERE, IN A SENTENCE")


RULE = Rule(
    "NEXT_CODE", "PUBLIC", "unknown",
    "FINDS WHAT.",
    "WHY IT IS BAD.",
    "import MODULE\\n\\nMODULE.NAME()\\n",
    "import MODULE\\n",
    "WHAT TO CHANGE, IN ONE LINE",
    "WHEN A REPORT IS WRONG.",
    find_NAME, default=False,
)  # fmt: skip
'''

RULE_TEST = '''"""What the rule `PUBLIC` must prove; tests/lint/test_rules.py looks at its examples."""

import pytest

from samerun.lint.NAME import RULE
from samerun.lint.table import RULES


def test_it_stands_in_the_table() -> None:
    assert RULE in RULES


def test_what_looks_like_it_is_not_reported() -> None:
    pytest.fail("write sources that look like the hazard and are none, and one for each way in which it is written")


def test_its_precision_is_known() -> None:
    pytest.fail("run it over public code and enter its findings in tests/lint/judged_findings.csv")


def test_words_are_filled_in() -> None:
    assert not any(words.isupper() for words in (RULE.what, RULE.why, RULE.fix, RULE.risk)) and RULE.cause != "unknown"
'''

KINDS = {
    "variation": MemberKind(
        "check/variations",
        "VARIATIONS",
        "VARIATION",
        "Variation",
        VARIATION,
        VARIATION_TEST,
        "add it to the help of `samerun check`, run python tools/docs.py",
    ),
    "cause": MemberKind("check/causes", "CAUSES", "CAUSE", "Cause", CAUSE, CAUSE_TEST, "run python tools/docs.py"),
    "interceptor": MemberKind(
        "record/watching/interceptors",
        "INTERCEPTORS",
        "INTERCEPTOR",
        "Interceptor",
        INTERCEPTOR,
        INTERCEPTOR_TEST,
        "say in docs/reference/trace-format.md what its events mean",
    ),
    "seed": MemberKind(
        "control/seeds",
        "SOURCES",
        "SOURCE",
        "RandomSource",
        SEED,
        SEED_TEST,
        "give tests/control/test_seeds.py a way to draw from it",
    ),
    "switch": MemberKind(
        "control/switches",
        "SWITCHES",
        "SWITCH",
        "Switch",
        SWITCH,
        SWITCH_TEST,
        "give tests/control/test_switches.py a way to set it, run python tools/docs.py",
    ),
    "operator": MemberKind(
        "control/deterministic_kernels",
        "OPERATORS",
        "OPERATOR",
        "DeterministicOperator",
        OPERATOR,
        OPERATOR_TEST,
        "give tests/support/operator_cases.py cases, run python tools/docs.py",
    ),
    "rule": MemberKind(
        "lint", "RULES", "RULE", "Rule", RULE, RULE_TEST, "move it to its family, run python tools/docs.py"
    ),
}


class Refused(Exception):
    """Nothing was written, and why."""


def find_test_folder(root: Path, room: str) -> Path:
    """The folder of the tests of a room: tests may have fewer floors than the source."""
    folder = root / "tests" / room
    while not folder.is_dir():
        folder = folder.parent
    return folder


def create_member(root: Path, word: str, name: str) -> list[Path]:
    """Write the member, its table entry and its test; returns the files. Raises Refused."""
    kind = KINDS.get(word)
    if kind is None:
        raise Refused(f"there is no kind {word!r}. There are: {', '.join(KINDS)}.")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise Refused(f"{name!r} is not a name for a {word}: use a lower-case identifier, such as page_size.")
    room = root / "src/samerun" / kind.room
    member, table = room / f"{name}.py", room / "table.py"
    test = find_test_folder(root, kind.room) / f"test_{word}_{name}.py"
    public = name.replace("_", "-")
    for path in (member, test):
        if path.exists():
            raise Refused(f"{path.relative_to(root)} is there already.")
    taken = collect_record_names(room, kind.record)
    for used in (name, public):
        if used in taken:
            raise Refused(f"the name {used!r} is taken by a member of {room.relative_to(root)}.")
    entered = add_to_table(table.read_text(encoding="utf-8"), kind, name)

    def filled(template: str) -> str:
        code = next_rule_code(taken) if "NEXT_CODE" in template else ""
        return template.replace("NEXT_CODE", code).replace("PUBLIC", public).replace("NAME", name)

    member.write_text(filled(kind.member), encoding="utf-8")
    table.write_text(entered, encoding="utf-8")
    test.write_text(filled(kind.test), encoding="utf-8")
    return [member, table, test]


def next_rule_code(taken: set[str]) -> str:
    """The code behind the last one that a rule has."""
    return f"SR{max(int(one[2:]) for one in taken if re.fullmatch('SR[0-9]+', one)) + 1}"


def collect_record_names(room: Path, record: str) -> set[str]:
    """The names of the records in a room, which need not be those of their files; of rules, their codes too."""
    naming = 2 if record == "Rule" else 1
    names = set()
    for path in sorted(room.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.value if isinstance(node, ast.Assign) else node
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or not call.args:
                continue
            # A record, or what a helper makes of one: `CUDNN = make_torch_flag_switch("cudnn", ...)`.
            makes_record = call.func.id == record or (isinstance(node, ast.Assign) and node.col_offset == 0)
            for word in call.args[:naming]:
                if makes_record and isinstance(word, ast.Constant) and isinstance(word.value, str):
                    names.add(word.value)
    return names


def add_to_table(text: str, kind: MemberKind, name: str) -> str:
    """The table's source with the member's import, in order, and its entry, last."""
    lines = text.splitlines()
    tree = ast.parse(text)
    imported = next(n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == kind.package)
    table = next(
        n
        for n in tree.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and n.target.id == kind.table
    )
    end = table.end_lineno
    assert end is not None and imported.end_lineno is not None
    lines.insert(end - 1, f"    {name}.{kind.exposed},")
    names = sorted({alias.name for alias in imported.names} | {name})
    one = f"from {kind.package} import {', '.join(names)}"
    long = imported.end_lineno > imported.lineno or len(one) > LINE
    new = [f"from {kind.package} import (", *(f"    {each}," for each in names), ")"] if long else [one]
    lines[imported.lineno - 1 : imported.end_lineno] = new
    return "\n".join(lines) + "\n"


def main(arguments: list[str], root: Path = ROOT) -> int:
    if len(arguments) != 2:
        print(f"usage: python tools/new.py KIND NAME\n  KIND: {', '.join(KINDS)}", file=sys.stderr)
        return 2
    word, name = arguments
    try:
        member, table, test = (str(path.relative_to(root)) for path in create_member(root, word, name))
    except Refused as reason:
        print(f"new.py: {reason}", file=sys.stderr)
        return 2
    print(f"wrote   {member}\nentered {table} (last: move it where it belongs in the order)\nwrote   {test}")
    print(f"Next: fill in the words in capitals, make {test} pass, {KINDS[word].then}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
