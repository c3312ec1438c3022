"""Folders that a run gets instead of the user's own: a copy of the working directory, another home."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from samerun.base.errors import SamerunError
from samerun.base.work_folder import is_work_folder

MAX_FILES = 2000
MAX_BYTES = 256 << 20
PARENT_LEVELS = 3
"""How many folders above the working directory have a counterpart above its copy."""


def why_folder_is_too_large_to_copy(folder: Path) -> str:
    """The reason why a folder is not copied for a run, or ""."""
    files = size = 0
    for path in walk_files_outside_work_folders(folder):
        files += 1
        try:
            size += path.stat().st_size
        except OSError:
            continue
        if files > MAX_FILES:
            return f"the working directory holds more than {MAX_FILES} files"
        if size > MAX_BYTES:
            return f"the working directory holds more than {MAX_BYTES >> 20} MiB"
    return ""


def walk_files_outside_work_folders(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_work_folder(os.path.join(here, name))]
        for name in names:
            yield Path(here, name)


def copy_folder(source: Path, target: Path, excluded: tuple[str, ...]) -> None:
    """Copy a folder with times and permissions; pipes and sockets are left out.

    Raises SamerunError when something cannot be read or the disk is full.
    """
    left_out = {(source / name).resolve() for name in excluded}

    def ignore(here: str, names: list[str]) -> set[str]:
        odd = set()
        for name in names:
            path = Path(here, name)
            plain = path.is_symlink() or path.is_file() or path.is_dir()
            if not plain or path.resolve() in left_out or is_work_folder(str(path)):
                odd.add(name)
        return odd

    try:
        shutil.copytree(source, target, symlinks=True, ignore=ignore)
    except (OSError, shutil.Error) as error:
        if isinstance(error, shutil.Error) and not any(os.path.lexists(each[0]) for each in error.args[0]):
            return  # what another program has deleted meanwhile
        raise SamerunError(
            f"The working directory could not be copied for a run: {error}.",
            hint="Leave the variation working_directory out of --vary, or start from a smaller folder.",
        ) from error


def path_of_copy_below(source: Path, top: Path) -> Path:
    """Where below `top` the copy of a folder lies: under its last names, so that `../data` can be there too."""
    return top.joinpath(*source.parts[1:][-PARENT_LEVELS:])


def symlink_siblings_of_folder_and_parents(source: Path, copy: Path) -> None:
    """Beside a copied folder and the folders above it: links to what lies beside the original.

    A program that looks for `../data` finds it. A folder with too many entries, or that cannot be read, is left out.
    """
    for _ in range(PARENT_LEVELS):
        if source.parent == source or copy.name != source.name:
            return
        name, source, copy = source.name, source.parent, copy.parent
        try:
            entries = [entry for entry in sorted(os.listdir(source)) if entry != name]
        except OSError:
            continue
        for entry in entries if len(entries) <= MAX_FILES else []:
            if not os.path.lexists(copy / entry):
                (copy / entry).symlink_to(source / entry)


def make_home_of_symlinks(target: Path, absent: Sequence[str] = ()) -> None:
    """A home directory in which everything lies that the real one holds, but for some files."""
    symlink_entries_but(Path(os.path.expanduser("~")), target, [Path(path) for path in absent])


def symlink_entries_but(source: Path, target: Path, absent: Sequence[Path]) -> None:
    """Links to what a folder holds; the folders that lead to an absent file are made, so that the run writes to them
    and not to the user's."""
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()) if source.is_dir() else []:
        below = [path for path in absent if path.is_relative_to(entry)]
        if below and entry not in below:
            symlink_entries_but(entry, target / entry.name, below)
        elif not below:
            (target / entry.name).symlink_to(entry)
