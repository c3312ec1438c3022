"""Write the pages that are made from the tables: causes, variations, switches, operators, promises and rules.

python tools/docs.py            write them
python tools/docs.py --check    exit 1 when they are out of date
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from portable_promises import PROMISES, list_families

from samerun.check.causes.cause import Cause
from samerun.check.causes.table import CAUSES
from samerun.check.plan import Variation
from samerun.check.variations.environment import find_installed_non_english_locale_or_posix
from samerun.check.variations.table import GROUPS, VARIATIONS
from samerun.control.deterministic_kernels.declare import DeterministicOperator
from samerun.control.deterministic_kernels.table import OPERATORS
from samerun.control.switches.switch import Switch, Variable, want_no_value
from samerun.control.switches.table import SWITCHES
from samerun.lint.rule import Rule
from samerun.lint.table import RULES

MOMENTS = {
    "before interpreter": "Must be set before the interpreter starts.",
    "before torch": "Must be set before torch is imported.",
    "before CUDA": "Must be set before CUDA starts.",
    "before library": "Must be set before the library is imported.",
    "any time": "Can be set at any time.",
}
ROOT = Path(__file__).resolve().parents[1]
WIDTH = 110
MADE = "<!-- Made by tools/docs.py: change the tables, not this page. -->"


def render_causes_page() -> str:
    """Every kind of cause, in table order; the report's `fix.doc` points to these headings."""
    head = """
        # Causes

        When two runs differ, `samerun check` looks for the cause and says which kind it is, where the hazard
        stands, and what to change. It says "Cause" when an experiment confirmed it (the difference goes away when the
        source is pinned and comes back without the pin; or the source was all that was varied); otherwise "Suspect".
        """
    listed = "\n".join(f"- [{each.kind}](#{each.kind})" for each in CAUSES)
    return join_page(head, listed, *(render_cause(each) for each in CAUSES))


def render_cause(each: Cause) -> str:
    return f"## {each.kind}\n\n{wrap_text(each.doc)}\n\n{wrap_text('**Fix:** ' + each.fix + '.')}"


def render_variations_page() -> str:
    """Every variation, in the order in which they are tried."""
    head = """
        # Variations

        `samerun check --vary LIST` takes names and groups, separated by commas, `all` or `none`. The default
        is `rerun,environment`. Each variation has a control value, which the runs it is compared with are
        given, and another value. All chosen ones are varied together first; only if that makes a difference
        are they varied one at a time.
        """
    groups = [f"- `{group}`: " + ", ".join(f"`{v.name}`" for v in VARIATIONS if v.group == group) for group in GROUPS]
    failing = ", ".join(f"`{v.name}`" for v in VARIATIONS if v.may_fail)
    fails = (
        "A run that fails under a variation is a difference: the program as it is ran to its end. Two things are"
        " trouble for that variation alone, and leave the verdict to the others: a run that the time limit ended"
        f" before anything in it differed, and a failure under {failing}, which many programs do not stand for reasons"
        " that have nothing to do with their values."
    )
    own = """
        ## Your own

        `--vary-env NAME=A,B[,C]` varies an environment variable that the program reads: the control value is
        A, and each other value is one variation. A difference points to
        [environment-variable](causes.md#environment-variable).
        """
    double = """
        ## Nothing

        `--double` varies nothing: it is one run in which every operator is executed twice
        ([more](double.md)).
        """
    told = (render_variation(each) for each in VARIATIONS)
    last = f"## When a varied run fails\n\n{wrap_text(fails)}"
    return join_page(head, "Groups:\n\n" + "\n".join(groups), *told, own, double, last)


def render_variation(each: Variation) -> str:
    # Which other locale there is depends on the machine; the page must not.
    detail = each.detail.replace(
        f"-> {find_installed_non_english_locale_or_posix()}", "-> another that the machine has"
    )
    lead = f"Group `{each.group}`: {detail}."
    if each.cause:
        lead += f" A difference points to [{each.cause}](causes.md#{each.cause})."
    doc = (inspect.getdoc(each.apply) or "").replace("``", "`")
    told = [wrap_text(part) for part in doc.split("\n\n") if part]
    return "\n\n".join([f"## {each.name}", wrap_text(lead), *told])


def render_switches_page() -> str:
    """Every switch, in the order in which they are set."""
    head = """
        # Switches

        Settings of torch, of the libraries under it and of the environment on which the bits of a run depend.
        `samerun.deterministic()` sets them (what can be set only before the program starts, it checks), and
        gives them back as it found them. `survey()` in `samerun.control.determinism.survey` tells, for each, what is
        wanted, what is in force, who set it, and whether it is too late.

        A variable that you set yourself is never overwritten: a valid value stays, another is an error. "Only
        recorded" means that no value is better than another as long as it stays the same.
        """
    listed = "\n".join(f"- [{each.name}](#{each.name}): {each.what}" for each in SWITCHES)
    return join_page(head, listed, *(render_switch(each) for each in SWITCHES))


def render_switch(each: Switch) -> str:
    recorded = each.wanted is want_no_value and all(one.wanted is want_no_value for one in each.variables)
    lead = f"{each.what} {'Only recorded.' if recorded else MOMENTS[each.when]}"
    variables = "\n".join(render_variable(one) for one in each.variables)
    return "\n\n".join(part for part in (f"## {each.name}", wrap_text(lead), variables, wrap_text(each.why)) if part)


def render_variable(each: Variable) -> str:
    if each.valid_values == "anything":
        return f"- `{each.name}`"
    return wrap_text(f"- `{each.name}`, valid: {each.valid_values}")


def render_operators_page() -> str:
    """Every deterministic operator, in the order of torch's own list."""
    head = """
        # Deterministic operators

        In its deterministic mode torch refuses a number of operators ("... does not have a deterministic
        implementation"), most of them on CUDA, where they add in the order in which threads happen to arrive. Under
        `samerun.deterministic()` and `samerun run` they just work, and give the same bits on every run (tier T0):
        kernels of samerun stand in for torch's in its dispatcher, in every thread, as long as the mode holds. User
        code does not change. Whether they are in force is the switch
        [deterministic_operators](switches.md#deterministic_operators).

        They are written in torch itself, of operators that write every memory cell once: gathers, sorts, sums of
        whole tensors. float16 and bfloat16 are added up in float32. Of several values written to one cell, the last
        one stays. Those that sort wait for the device, so a CUDA graph cannot capture them. A program that calls
        `torch.use_deterministic_algorithms(False)` has torch's own kernels from there on.

        **What was measured.** On the CPU, with torch 2.13: every operator against torch's own (the same bits where
        nothing is added up, else within 2e-5 in float32 and 1e-12 in float64), its gradient against differences, and
        repeats with two threads. No CUDA device was at hand: what the kernels are made of is checked operator by
        operator, and tests for a device are in the tree; times on one are what `benchmarks/bench_cuda.py` prints.

        Torch itself has deterministic algorithms, which the mode turns on, for index_add, index_copy, scatter,
        scatter_add, scatter_reduce with sums and means, index_put on CUDA, the gradients of gather, index_select and
        repeat_interleave, convolution, and sparse-dense bmm. Attention has a [switch](switches.md#sdpa).
        """
    listed = "\n".join(f"- [{each.name}](#{each.name}): {each.what}" for each in OPERATORS)
    return join_page(head, listed, *(render_operator(each) for each in OPERATORS))


def render_operator(each: DeterministicOperator) -> str:
    keys = [key for key in ("CUDA", "CPU", "QuantizedCPU") if any(key in kernel.keys for kernel in each.kernels)]
    names = ", ".join(f"`{overload}`" for kernel in each.kernels for overload in kernel.overloads)
    names = ", ".join(dict.fromkeys(names.split(", ")))
    parts = [each.what, f"**Method:** {each.method}", f"**Cost:** {each.cost}"]
    parts.append(f"In place of {names}, on {' and '.join(keys)}.")
    return "\n\n".join([f"## {each.name}", *map(wrap_text, parts)])


def render_portable_operators_page() -> str:
    """What `portable()` promises of every operator, by families of its table."""
    head = """
        # Operators of portable()

        What [`samerun.portable()`](../portable.md) promises of the operators in its table: in which order they add,
        where they round, and how near to the truth that is. float32 and float64 each compute in their own type, unless
        it says otherwise. Of whole numbers and booleans results are exact. Of complex numbers only the operators
        in [complex_numbers](#complex_numbers) run, of sparse tensors those in [sparse](#sparse). The bits are those of
        the written steps on every machine, whatever their accuracy.
        """
    return join_page(head, *(render_family(family, operators) for family, operators in list_families()))


def render_family(family: ModuleType, operators: dict[str, str]) -> str:
    name = family.__name__.rpartition(".")[2]
    promise = PROMISES[name]
    rows = {"adds": promise.adds, "rounds": promise.rounds, "accuracy": promise.accuracy, "half types": promise.half}
    promised = "\n".join(["| | |", "|---|---|", *(f"| {row} | {text} |" for row, text in rows.items())])
    of_formula: dict[str, list[str]] = {}
    for operator, formula in operators.items():
        of_formula.setdefault(formula, []).append(f"`{operator.removeprefix('aten::')}`")
    listed = [wrap_text(", ".join(of_formula.pop("", [])))]
    listed.append("\n".join(f"- {', '.join(names)}: {formula}" for formula, names in of_formula.items()))
    about = (inspect.getdoc(family) or "").split("\n\n")[0]
    return "\n\n".join([f"## {name}", wrap_text(about), promised, *(each for each in listed if each)])


def render_rules_page() -> str:
    """Every rule of `samerun lint`, in the order of codes."""
    head = """
        # Rules

        `samerun lint PATH...` finds these hazards in source without running it; `samerun check` finds them, and others,
        by running the program. Each rule leads to a [cause](../causes.md) of `check`. Nothing is imported or executed,
        but with `--confirm "train.py ARGS"`: it runs the program and says which findings it proves and which it drops.

        `--select` and `--ignore` take beginnings of codes, by comma, and the words `default` and `all`. A comment
        `# noqa: SR121` with a reason behind it, on the line of a finding, leaves it out. Settings for a project:

        ```toml
        [tool.samerun.lint]
        select = ["default", "SR144"]
        ignore = ["SR151"]
        exclude = ["third_party"]
        ```

        flake8 knows the rules once samerun is installed beside it (its own `select` and `ignore` hold there), and
        `.pre-commit-hooks.yaml` has the hook `samerun-lint`. Editors give unsaved text to
        `samerun lint --stdin-filename train.py -`; `--format` writes `json`, `sarif` or `github`. A finding in a file
        that calls others is judged by what stands in that file. Tests (`def test_...`, `class Test...`) are left out:
        they may draw as they like. So is what stands in functions and classes that nothing in the linted folder uses.

        Rules that are off by default report what does not make a rerun differ, or are wrong more often than one time in
        ten on public training code ([what was judged](../../tests/lint/README.md)).
        """
    listed = "\n".join(f"- [{each.code} {each.name}](#{each.code.lower()}-{each.name}){_off(each)}" for each in RULES)
    return join_page(head, listed, *(render_rule(each) for each in RULES))


def _off(rule: Rule) -> str:
    return "" if rule.default else ", off by default"


def render_rule(each: Rule) -> str:
    """The examples are looked at in tests/lint, and not run like those of other pages (which begin with ```python)."""
    lead = f"{each.what} {each.why} It leads to [{each.cause}](../causes.md#{each.cause})."
    parts = [wrap_text(lead), f"```py\n# before\n{each.before}```", f"```py\n# after\n{each.after}```"]
    parts += [wrap_text(f"**Fix:** {each.fix}."), wrap_text(f"**False alarms:** {each.risk}")]
    return "\n\n".join([f"## {each.code} {each.name}", *parts])


def join_page(*parts: str) -> str:
    return "\n\n".join([MADE, *(textwrap.dedent(part).strip() for part in parts)]) + "\n"


def wrap_text(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


PAGES = {
    "docs/causes.md": render_causes_page,
    "docs/variations.md": render_variations_page,
    "docs/reference/switches.md": render_switches_page,
    "docs/reference/operators.md": render_operators_page,
    "docs/reference/portable-operators.md": render_portable_operators_page,
    "docs/reference/rules.md": render_rules_page,
}


def find_outdated_pages(root: Path = ROOT) -> list[str]:
    """The pages that are not what the tables say."""
    old = []
    for name, make in PAGES.items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != make():
            old.append(name)
    return old


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python tools/docs.py [--check]", file=sys.stderr)
        return 2
    old = find_outdated_pages()
    for name in old:
        if arguments:
            print(f"{name} is out of date: run python tools/docs.py", file=sys.stderr)
        else:
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
            print(f"wrote {name}")
    return 1 if old and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
