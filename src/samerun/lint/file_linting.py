"""Files and texts looked at by rules: which files, what they hold, what is suppressed, what is mended.

Nothing is imported or executed. Whatever cannot be read ends as a `LintProblem` with a sentence, never in a traceback.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.files import read_regular_file, replace_file_atomically
from samerun.base.records import LintFinding, LintProblem
from samerun.base.source_edits import (
    LARGEST_BYTES,
    Edit,
    Position,
    SourceAtLine,
    apply_edits,
    decode_python_source,
    split_python_lines,
)
from samerun.base.text import escape_as_one_line
from samerun.lint.rule import Hit, Rule, is_in_test_demo_or_unused_code
from samerun.lint.source_files import make_problem, read_code_cells
from samerun.lint.source_index import ALONE, FileInProject, SourceIndex
from samerun.lint.table import RULES

NOQA = re.compile(r"#\s*noqa\b(?!:)|#\s*noqa:\s?(?P<codes>[A-Z]+[0-9]*(?:[,\s]+[A-Z]+[0-9]+)*)", re.IGNORECASE)
FEWEST_FILES_IN_PARALLEL = 24
"""With fewer files, starting processes takes longer than they save."""


# --- which rules
def select_rules(select: Sequence[str], ignore: Sequence[str]) -> tuple[Rule, ...]:
    """The rules whose codes begin with a word of `select` and with none of `ignore`; `default` and `all` are words.

    Raises SamerunError for a word that no code begins with.
    """
    known = ("all", "default")
    for option, words in (("--select", select), ("--ignore", ignore)):
        for word in words:
            if word not in known and not any(rule.code.startswith(word) for rule in RULES):
                raise SamerunError(
                    f"{option} {word}: no rule has a code that begins like this.",
                    hint=f"Codes are {RULES[0].code} to {RULES[-1].code}, and the words default and all.",
                )
    chosen = tuple(select) or ("default",)
    return tuple(
        rule for rule in RULES
        if any(word == "all" or (word == "default" and rule.default) or rule.code.startswith(word) for word in chosen)
        and not any(rule.code.startswith(word) for word in ignore)
    )  # fmt: skip


@dataclass(frozen=True)
class LintSettings:
    """`[tool.samerun.lint]` of a pyproject.toml. `exclude`: patterns of paths that are not looked at."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def read_lint_settings(folder: Path) -> LintSettings:
    """The settings that hold in a folder: of the nearest pyproject.toml, there or above.

    Raises SamerunError for a file that cannot be read, and for settings that there are not.
    """
    path = next(
        (one / "pyproject.toml" for one in (folder, *folder.parents) if (one / "pyproject.toml").is_file()), None
    )
    if path is None:
        return LintSettings()
    try:
        text = read_regular_file(path, LARGEST_BYTES).decode()
        if "samerun" not in text:
            return LintSettings()
        tools = _parse_toml(text).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise SamerunError(f"{path}: {error}.", hint="Correct the file, or lint elsewhere.") from error
    own = tools.get("samerun", {}) if isinstance(tools, dict) else {}
    table = own.get("lint", {}) if isinstance(own, dict) else own
    fields = ("select", "ignore", "exclude")
    for key, value in table.items() if isinstance(table, dict) else [("samerun.lint", table)]:
        strings = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if key not in fields or not strings:
            raise SamerunError(
                f"{path}: [tool.samerun.lint] {key} = {escape_as_one_line(value)} cannot be used.",
                hint=f"It takes {', '.join(fields)}, each a list of strings.",
            )
    return LintSettings(**{key: tuple(value) for key, value in table.items()})


def _parse_toml(text: str) -> dict[str, Any]:
    for name in ("tomllib", "tomli"):  # the first is not in Python 3.10
        try:
            loads = import_module(name).loads
        except ImportError:
            continue
        parsed: dict[str, Any] = loads(text)
        return parsed
    raise SamerunError(
        "pyproject.toml has settings of samerun, and Python 3.10 has no module that reads TOML.",
        hint="pip install tomli",
    )


# --- one text
@dataclass(frozen=True)
class LintedFile:
    """What was found in one file. `edits`: for each finding, what mends it."""

    file: str
    findings: tuple[LintFinding, ...] = ()
    edits: tuple[tuple[Edit, ...], ...] = ()
    problem: LintProblem | None = None
    project: FileInProject = ALONE


def lint_text(text: str, file: str, rules: Iterable[Rule], *, project: FileInProject = ALONE) -> LintedFile:
    """The findings in one Python source, by line; suppressed ones are left out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escape sequences in the user's strings
            path = Path(file)
            index = SourceIndex(text, project=project, stem=path.stem, is_notebook=path.suffix == ".ipynb")
        hits = [
            (rule, hit)
            for rule in rules
            for hit in rule.find(index)
            if not is_in_test_demo_or_unused_code(index, hit.node)
        ]
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return LintedFile(file, problem=LintProblem(file, f"{where}it is not Python 3 source ({error.msg})"))
    except (RecursionError, MemoryError):
        return LintedFile(file, problem=LintProblem(file, "it is nested too deeply to be looked at"))
    except ValueError as error:  # null bytes, before Python 3.12
        return LintedFile(file, problem=make_problem(file, error))
    lines = split_python_lines(text)
    found: dict[tuple[int, int, str], tuple[LintFinding, tuple[Edit, ...]]] = {}
    for rule, hit in hits:
        if not _is_suppressed(hit, rule.code, lines):
            finding = _make_finding(file, rule, hit, lines)
            found.setdefault((finding.line, finding.column, finding.code), (finding, hit.edits))
    ordered = [found[key] for key in sorted(found)]
    findings, edits = tuple(one for one, _ in ordered), tuple(one for _, one in ordered)
    return LintedFile(file, findings, edits, project=project)


def _is_suppressed(hit: Hit, code: str, lines: list[str]) -> bool:
    """Whether the first or last line of a statement or expression has a comment that says so."""
    for number in {hit.node.lineno, _head_end(hit.node)}:
        line = lines[number - 1] if number <= len(lines) else ""
        said = NOQA.search(line)
        if said is not None:
            codes = said["codes"]
            if codes is None or any(code.startswith(one.upper()) for one in re.split(r"[,\s]+", codes) if one):
                return True
    return False


def _head_end(node: ast.expr | ast.stmt) -> int:
    """The last line of an expression, or of a statement without a body."""
    return node.lineno if hasattr(node, "body") else node.end_lineno or node.lineno


def _make_finding(file: str, rule: Rule, hit: Hit, lines: list[str]) -> LintFinding:
    node = hit.node
    end_line = _head_end(node)
    end = node.end_col_offset if end_line == node.end_lineno else None
    return LintFinding(
        file=file, line=node.lineno, column=_to_characters(lines, node.lineno, node.col_offset) + 1, end_line=end_line,
        end_column=_to_characters(lines, end_line, end if end is not None else node.col_offset + 1) + 1, code=rule.code,
        name=rule.name, message=hit.message, cause=hit.cause or rule.cause, fix=rule.fix, fixable=bool(hit.edits),
    )  # fmt: skip


def _to_characters(lines: list[str], line: int, byte: int) -> int:
    """The column in characters of a column in UTF-8 bytes."""
    text = lines[line - 1] if line <= len(lines) else ""
    return byte if text.isascii() else len(text.encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "replace"))


# --- notebooks
def lint_notebook(raw: bytes, file: str, rules: Iterable[Rule], *, project: FileInProject = ALONE) -> LintedFile:
    """The findings in the code cells of a notebook, which are looked at as one program; none is mended."""
    try:
        cells = read_code_cells(raw)
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError) as error:
        why = "" if isinstance(error, RecursionError) else f" ({escape_as_one_line(str(error), 80)})"
        return LintedFile(file, problem=LintProblem(file, f"it is not a notebook{why}"))
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, source in cells:
        text = _without_magics(source)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # a cell in another language, or one that does not run: the others are still looked at
        for line, part in enumerate(split_python_lines(text), 1):
            lines.append(part.rstrip("\r\n") + "\n")
            places.append((number, line))
    linted = lint_text("".join(lines), file, rules, project=project)
    findings = []
    for one in linted.findings:
        (cell, line), (_, end) = places[one.line - 1], places[one.end_line - 1]
        said = re.sub(r"\bline (\d+)", lambda found: "cell {} line {}".format(*places[int(found[1]) - 1]), one.message)
        findings.append(replace(one, cell=cell, line=line, end_line=end, fixable=False, message=said))
    return replace(linted, findings=tuple(findings), edits=tuple(() for _ in findings))


def _without_magics(source: str) -> str:
    """IPython's own lines (%matplotlib inline, !pip install) become `pass`, so that lines keep their numbers."""
    lines = split_python_lines(source)
    if lines and lines[0].startswith("%%"):
        return "\n" * len(lines)
    return "".join(re.sub(r"^(\s*)[%!?].*", r"\1pass", line) for line in lines)


# --- one file, all files
def lint_file(file: str, rules: Sequence[Rule], *, project: FileInProject = ALONE) -> LintedFile:
    """The findings in a file, or why there are none to be had."""
    try:
        raw = read_regular_file(file, LARGEST_BYTES)
        if file.endswith(".ipynb"):
            return lint_notebook(raw, file, rules, project=project)
        return lint_text(decode_python_source(raw).text, file, rules, project=project)
    except (OSError, SyntaxError, ValueError) as error:
        return LintedFile(file, problem=make_problem(file, error))


def _lint_file_by_codes(file: str, codes: tuple[str, ...], project: FileInProject) -> LintedFile:
    return lint_file(file, [rule for rule in RULES if rule.code in codes], project=project)


def lint_files(
    files: Sequence[str], rules: Sequence[Rule], projects: Mapping[str, FileInProject] | None = None
) -> list[LintedFile]:
    """What `lint_file` finds in each, in the order of the files; many are looked at in several processes.

    `projects`: what `find_facts_of_files_below_folders` knows of them; None: each stands alone.

    Raises SamerunError if one of these is killed.
    """
    known = [(projects or {}).get(one, ALONE) for one in files]
    count = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 16)
    if len(files) < FEWEST_FILES_IN_PARALLEL or count < 2:
        return [lint_file(one, rules, project=of) for one, of in zip(files, known, strict=True)]
    codes, count_of_files = tuple(rule.code for rule in rules), len(files)
    try:
        with ProcessPoolExecutor(count) as pool:
            return list(pool.map(_lint_file_by_codes, files, [codes] * count_of_files, known, chunksize=8))
    except BrokenExecutor as error:
        raise SamerunError(
            f"A process that looked at some of {count_of_files} files was ended from outside.",
            hint="Is there memory left? Name fewer files at a time.",
        ) from error


def list_lines_of_finding_and_of_what_it_calls(finding: LintFinding) -> list[range]:
    """The lines of a finding, and of the class or function of its file that it calls: a model draws in its class."""
    lines = [range(finding.line, finding.end_line + 1)]
    try:
        index = _index_text(decode_python_source(read_regular_file(finding.file, LARGEST_BYTES)).text)
    except (OSError, SyntaxError, ValueError):
        return lines
    for call in index.calls:
        if call.lineno == finding.line and isinstance(call.func, ast.Name):
            bound = (one for one in index.bindings_of(call.func) if isinstance(one, (ast.ClassDef, ast.FunctionDef)))
            lines += [range(one.lineno, (one.end_lineno or one.lineno) + 1) for one in bound]
    return lines


@lru_cache(maxsize=1)
def _index_text(text: str) -> SourceIndex:
    """Parsed once for all findings of a file, which follow each other."""
    return SourceIndex(text)


# --- mending
def fix_file(linted: LintedFile, rules: Sequence[Rule]) -> int:
    """Make the edits of the findings in a file; returns how many were mended. The file stays what it was otherwise.

    Raises OSError or SamerunError where it cannot be written.
    """
    if not any(linted.edits):
        return 0
    source = decode_python_source(read_regular_file(linted.file, LARGEST_BYTES))
    fixed, count = fix_text(source.text, linted, rules)
    if count:
        path = Path(os.path.realpath(linted.file))
        content = (source.bom + fixed).encode(source.encoding)
        replace_file_atomically(path, lambda file: file.write(content), mode=path.stat().st_mode & 0o7777)
    return count


def fix_text(text: str, linted: LintedFile, rules: Sequence[Rule]) -> tuple[str, int]:
    """The text with the edits made, and how many findings that mends.

    Of edits that touch each other the first is made. What does not parse afterwards, or is reported again, is not
    changed.
    """
    wanted: list[tuple[str, tuple[Edit, ...]]] = []
    for finding, edits in zip(linted.findings, linted.edits, strict=True):
        if edits and not any(_edits_touch(edits, other) for _, other in wanted):
            wanted.append((finding.code, edits))
    if wanted and (changed := _try_edits(text, wanted, linted, rules)) is not None:
        return changed, len(wanted)
    kept: list[tuple[str, tuple[Edit, ...]]] = []
    result = text
    for one in wanted:
        changed = _try_edits(text, [*kept, one], linted, rules)
        if changed is not None:
            kept, result = [*kept, one], changed
    return result, len(kept)


def _try_edits(
    text: str, wanted: list[tuple[str, tuple[Edit, ...]]], linted: LintedFile, rules: Sequence[Rule]
) -> str | None:
    """The text with all of these edits; None where it no longer parses, or a finding that they mend is still there.

    A seed that is put in can make other rules report what did not count before.
    """
    changed = apply_edits(SourceAtLine(text, 1), [edit for _, edits in wanted for edit in edits])
    again = lint_text(changed, linted.file, rules, project=linted.project)
    before, now = (Counter(one.code for one in each.findings) for each in (linted, again))
    before.subtract(code for code, _ in wanted)
    told = {code for code, _ in wanted} | {rule.code for rule in rules if not rule.needs_seed}
    if again.problem is not None or any(now[code] > before[code] for code in told):
        return None
    return changed


def _edits_touch(a: tuple[Edit, ...], b: tuple[Edit, ...]) -> bool:
    (a_start, a_end), (b_start, b_end) = _span_of(a), _span_of(b)
    return a_start <= b_end and b_start <= a_end


def _span_of(edits: tuple[Edit, ...]) -> tuple[Position, Position]:
    return min(one.start for one in edits), max(one.end for one in edits)


# --- flake8
class Flake8Plugin:
    """The default rules, and those that [tool.samerun.lint] selects, as an extension of flake8."""

    name = "samerun"
    version = "1"

    def __init__(self, tree: ast.AST, filename: str, lines: list[str]) -> None:
        self.text, self.filename = "".join(lines), filename

    def run(self) -> Iterator[tuple[int, int, str, type[Flake8Plugin]]]:
        settings = read_lint_settings(Path.cwd())
        for one in lint_text(self.text, self.filename, select_rules(settings.select, settings.ignore)).findings:
            yield one.line, one.column - 1, f"{one.code} {one.message}", type(self)
