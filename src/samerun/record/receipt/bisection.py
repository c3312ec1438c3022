"""Find which of a row of changes moved the results: halving, with a receipt of every run as proof.

The first state is the good one and the last the bad one. A state counts as moved when its results are not those of the
first. Commits are checked out from the objects of the repository into a folder of their own, always the same one, with
a git that reads no configuration of the repository's: nothing in the working tree or its git directory changes.
"""

from __future__ import annotations

import difflib
import filecmp
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.comparison.compare import find_first_difference
from samerun.record.receipt.code_version import (
    GitError,
    Repository,
    SandboxedGit,
    find_git_repository,
    open_sandboxed_git,
    read_reference,
)
from samerun.record.receipt.diff import SAME, ComparedRun, describe_first_difference, diff_runs
from samerun.record.trace.reader import SourceLocation
from samerun.record.trace.run import Event, RunTraces

MAX_CHECKOUT_SECONDS = 600.0
"""For each command of git: large repositories on slow disks take minutes to be checked out."""
FAR_LINE = 10_000_000
"""Added to the number of a line that the other version does not have: it is then nobody's."""


@dataclass(frozen=True)
class RecordedChange:
    """One of the changes: a commit, a setting, a version of a package. `name` is what people call it."""

    name: str
    detail: str


@dataclass(frozen=True)
class BisectionResult:
    """`change`: the number of the change that moved the results, from 0. untested: changes that could not be run, next
    to it, any of which may be the one. difference: what moved first, in words."""

    change: int
    untested: tuple[int, ...]
    good_run: ComparedRun
    bad_run: ComparedRun
    run_count: int
    difference: str


RunState = Callable[[int], ComparedRun | None]
"""Runs the program with the first so many changes; None if it does not run there."""


def bisect_changes(change_count: int, run_state: RunState, ignored_outputs: Sequence[str] = ()) -> BisectionResult:
    """Which change moved the results. Raises SamerunError if the ends cannot be run, or give the same."""
    runs: dict[int, ComparedRun | None] = {}

    def run(state: int) -> ComparedRun | None:
        if state not in runs:
            runs[state] = run_state(state)
        return runs[state]

    good, bad = run(0), run(change_count)
    for which, end in (("good", good), ("bad", bad)):
        if end is None:
            raise SamerunError(f"The program does not run in the {which} state.", hint="Does it work without samerun?")
    assert good is not None and bad is not None
    if diff_runs(good, bad, ignored_outputs)["verdict"] == SAME:
        raise SamerunError("The good and the bad state give the same results: there is nothing to find.",
                           hint="Name two states whose results differ.")  # fmt: skip
    low, high = 0, change_count
    while True:
        inside = sorted(range(low + 1, high), key=lambda state: (abs(2 * state - low - high), state))
        state = next((each for each in inside if run(each) is not None), None)
        if state is None:
            break
        found = runs[state]
        assert found is not None
        if diff_runs(good, found, ignored_outputs)["verdict"] == SAME:
            low = state
        else:
            high = state
    before, after = runs[low], runs[high]
    assert before is not None and after is not None
    told = describe_first_difference(diff_runs(before, after, ignored_outputs))
    return BisectionResult(high - 1, tuple(range(low, high - 1)), before, after, len(runs), told)


def find_first_differing_operator_event(
    before: ComparedRun, after: ComparedRun, map_line_to_after: Callable[[str, int], int]
) -> Event | None:
    """The first operator that gives something else after the change; None where no operator was recorded.

    map_line_to_after: the number that a line of the version before has in the one after, so that moved lines are no
    difference.
    """
    if before.traces is None or after.traces is None:
        return None
    one, other = RunTraces(before.traces), RunTraces(after.traces)
    for trace in one.traces.values():
        trace.locations = [
            SourceLocation(file, map_line_to_after(file, line) if line else 0, module)
            for file, line, module in trace.locations
        ]
    difference = find_first_difference(one, other)
    return (difference.b or difference.a) if difference is not None else None


# --- commits
class CommitRow:
    """The commits of a repository from a good one to a bad one, along first parents, and their checkouts."""

    def __init__(self, git: SandboxedGit, repository: Repository, good: str, bad: str) -> None:
        self.git, self.repository = git, repository
        first, last = (resolve_commit(git, repository, name) for name in (good, bad))
        listed = read_git_output(git, "rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
        self.commits = [first, *listed]
        if len(self.commits) < 2:
            raise SamerunError(f"No commit lies between {good} and {bad}.", hint="The good one must be the older one.")
        parent = read_git_output(git, "rev-list", "--first-parent", "--parents", "-1", listed[0]).split()
        if parent[1:2] != [first]:
            raise SamerunError(
                f"{good} is not an ancestor of {bad} along first parents.", hint="Name a commit of the same branch."
            )

    def changes(self) -> list[RecordedChange]:
        subjects = [read_git_output(self.git, "log", "-1", "--format=%s", commit) for commit in self.commits[1:]]
        return [
            RecordedChange(commit[:12], subject) for commit, subject in zip(self.commits[1:], subjects, strict=True)
        ]  # fmt: skip

    def empty_folder_and_check_out(self, commit_index: int, folder: Path) -> None:
        """Put the files of a commit into a folder, which is emptied before. Raises SamerunError."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            read_git_output(self.git, "read-tree", self.commits[commit_index])
            read_git_output(self.git, "checkout-index", "--all", "--force", f"--prefix={folder}{os.sep}")
        except GitError as error:
            raise SamerunError(
                f"Commit {self.commits[commit_index][:12]} cannot be checked out: {error}.",
                hint="Does `git fsck` pass? Is there space in the temporary folder?",
            ) from error

    def read_file(self, commit_index: int, path: str) -> list[str]:
        """The lines of a file in a commit, by its path from the top; none where it is not there."""
        try:
            return read_git_output(self.git, "show", f"{self.commits[commit_index]}:{path}", strip=False).splitlines()
        except GitError:
            return []

    def make_line_map_from_previous_commit(self, commit_index: int, checkout: Path) -> Callable[[str, int], int]:
        """What `find_first_differing_operator_event` needs, between a commit and the one before it."""
        known: dict[str, dict[int, int]] = {}

        def map_line(file: str, line: int) -> int:
            if not file.startswith(str(checkout) + os.sep):
                return line
            if file not in known:
                path = Path(file).relative_to(checkout).as_posix()
                known[file] = map_line_numbers_to_new_version(
                    self.read_file(commit_index - 1, path), self.read_file(commit_index, path)
                )
            return known[file].get(line, FAR_LINE + line)

        return map_line


def map_line_numbers_to_new_version(before: list[str], after: list[str]) -> dict[int, int]:
    """Line numbers (from 1) of lines that both versions have, and of lines that were changed in place."""
    found: dict[int, int] = {}
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal" or (tag == "replace" and i2 - i1 == j2 - j1):
            found.update({i1 + at + 1: j1 + at + 1 for at in range(i2 - i1)})
    return found


def read_git_output(git: SandboxedGit, *arguments: str, strip: bool = True) -> str:
    """What a git command prints. Raises GitError."""
    text = b"".join(git.stream_output(*arguments)).decode("utf-8", "replace")
    return text.strip() if strip else text


def resolve_commit(git: SandboxedGit, repository: Repository, name: str) -> str:
    """The hash of what the user calls a commit: a hash, HEAD, a branch or tag, with ~N or ^ behind it."""
    base, suffix = re.fullmatch(r"([^~^]*)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    start = repository.commit if base in ("", "HEAD", "@") else read_reference(repository, base) or base
    try:
        if start.startswith("-"):
            raise GitError("it begins with a dash")
        return read_git_output(git, "rev-parse", "--verify", "--quiet", f"{start}{suffix}^{{commit}}")
    except GitError as error:
        raise SamerunError(
            f"{name} is not a commit in {repository.top}.", hint="Name a hash, a branch or a tag."
        ) from error


@contextmanager
def open_commit_row(good: str, bad: str) -> Iterator[CommitRow]:
    """The commits between two of the repository in which the user works. Raises SamerunError."""
    repository = find_git_repository(Path.cwd())
    if repository is None:
        raise SamerunError(
            "This folder is in no git repository.", hint="Go to the folder of the program, or use --over."
        )
    try:
        with open_sandboxed_git(repository, MAX_CHECKOUT_SECONDS) as git:
            yield CommitRow(git, repository, good, bad)
    except GitError as error:
        raise SamerunError(f"git failed: {error}.", hint="Does `git log` work in this folder?") from error


# --- settings and packages, between two receipts
@dataclass(frozen=True)
class SettingsState:
    """The words of a command and the variables that a receipt has recorded."""

    words: tuple[str, ...]
    variables: dict[str, str]


@dataclass(frozen=True)
class SettingChange(RecordedChange):
    """A change of arguments (at words `begin` to `end` of the good command) or of a variable."""

    begin: int = 0
    end: int = 0
    words: tuple[str, ...] = ()
    variable: str = ""
    value: str | None = None


def list_setting_changes(good: SettingsState, bad: SettingsState) -> list[SettingChange]:
    """What differs between two commands, in order, then what differs between their variables, by name."""
    found: list[SettingChange] = []
    groups = [group_options_with_values(side.words) for side in (good, bad)]
    starts = [0]
    for group in groups[0]:
        starts.append(starts[-1] + len(group))
    names = [[group[0].partition("=")[0] for group in side] for side in groups]
    matcher = difflib.SequenceMatcher(None, names[0], names[1], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        blocks = [(i1, i2, j1, j2)]
        if tag == "equal" or (tag == "replace" and i2 - i1 == j2 - j1):  # one by one, perhaps with another value
            pairs = zip(range(i1, i2), range(j1, j2), strict=True)
            blocks = [(i, i + 1, j, j + 1) for i, j in pairs if groups[0][i] != groups[1][j]]
        for a1, a2, b1, b2 in blocks:
            old, new = (" ".join(w for g in groups[side][x:y] for w in g) for side, x, y in ((0, a1, a2), (1, b1, b2)))
            words = tuple(word for group in groups[1][b1:b2] for word in group)
            text = f"{old or '(none)'} -> {new or '(none)'}"
            found.append(SettingChange(f"argument {new or old}", text, starts[a1], starts[a2], words))
    for name in sorted({*good.variables, *bad.variables}):
        old_value, value = good.variables.get(name), bad.variables.get(name)
        if old_value != value:
            text = f"{'(not set)' if old_value is None else old_value} -> {'(not set)' if value is None else value}"
            found.append(SettingChange(f"variable {name}", text, variable=name, value=value))
    return found


def group_options_with_values(words: Sequence[str]) -> list[tuple[str, ...]]:
    """An option with its value is one group: `--lr 0.1`."""
    groups: list[tuple[str, ...]] = []
    for word in words:
        last = groups[-1] if groups else ()
        if len(last) == 1 and last[0].startswith("--") and "=" not in last[0] and not word.startswith("-"):
            groups[-1] = (*last, word)
        else:
            groups.append((word,))
    return groups


def apply_setting_changes(good: SettingsState, changes: Sequence[SettingChange]) -> SettingsState:
    """The good settings with some of the changes made."""
    words, variables = list(good.words), dict(good.variables)
    for change in sorted((each for each in changes if not each.variable), key=lambda each: -each.begin):
        words[change.begin : change.end] = change.words
    for change in changes:
        if change.variable and change.value is None:
            variables.pop(change.variable, None)
        elif change.variable:
            variables[change.variable] = str(change.value)
    return SettingsState(tuple(words), variables)


@dataclass(frozen=True)
class PackageChange(RecordedChange):
    """A package whose version differs between two receipts; None: it is not there."""

    good: str | None = None
    bad: str | None = None


def list_package_changes(
    good: dict[str, Any], bad: dict[str, Any], installed: dict[str, str]
) -> tuple[list[PackageChange], list[str]]:
    """What can be changed from the one into the other, and the packages that cannot: those that one receipt lacks, and
    that are installed here, since a folder in front of the environment hides no package of it.

    What is added comes first and what is taken away last, so that a new version of a package finds in every state what
    it depends on. installed: canonical name -> version.
    """
    changes, kept = [], []
    for name in sorted({*good, *bad}):
        old, new = good.get(name), bad.get(name)
        if old == new:
            continue
        if (old is None or new is None) and canonicalize_package_name(name) in installed:
            kept.append(name)
            continue
        changes.append(PackageChange(name, f"{old or '(absent)'} -> {new or '(absent)'}", old, new))
    changes.sort(key=lambda change: (change.good is not None, change.bad is None, change.name))
    return changes, kept


def canonicalize_package_name(name: str) -> str:
    """As package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


# --- data, between two folders
@dataclass(frozen=True)
class FileChange(RecordedChange):
    """A file that differs between two folders, by its path below them; None: it is not there."""

    good: Path | None = None
    bad: Path | None = None


def map_data_files_by_relative_path(folder: Path) -> dict[str, Path]:
    """Path below the folder -> file. Raises SamerunError if the folder cannot be read."""

    def refuse(error: OSError) -> None:
        raise SamerunError(f"{error.filename}: {error.strerror}.", hint="Name two folders of data.")

    files = [Path(top, name) for top, _, names in os.walk(folder, onerror=refuse) for name in names]
    return {path.relative_to(folder).as_posix(): path.absolute() for path in sorted(files) if path.is_file()}


def list_file_changes(good: dict[str, Path], bad: dict[str, Path]) -> list[FileChange]:
    """The files of which contents differ, by path."""
    changes = []
    for name in sorted({*good, *bad}):
        old, new = good.get(name), bad.get(name)
        if old is None or new is None:
            changes.append(FileChange(name, "added" if old is None else "taken away", old, new))
        elif not filecmp.cmp(old, new, shallow=False):
            changes.append(FileChange(name, f"{old.stat().st_size:,} -> {new.stat().st_size:,} bytes", old, new))
    return changes


def empty_folder_and_link_changed_data(folder: Path, good: dict[str, Path], changes: Sequence[FileChange]) -> None:
    """Fill a folder, which is emptied before, with links to the good files after some of the changes."""
    shutil.rmtree(folder, ignore_errors=True)
    files: dict[str, Path | None] = {**good, **{change.name: change.bad for change in changes}}
    folder.mkdir(parents=True)
    for name, path in files.items():
        if path is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(path)
