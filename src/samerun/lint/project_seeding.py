"""Which files are run by programs that seed nothing.

An order that only draws can make count does no harm where nothing seeds them. Files are searched as bytes, and imports
are followed by name: to parse every file a second time would take as long as the rules do.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from samerun.base.files import read_regular_file
from samerun.base.source_edits import LARGEST_BYTES

SEEDS = re.compile(
    rb"(?:\b(?:torch|th)(?:\.random|\.cuda)?\.|^\s*)manual_seed(?:_all)?\s*\(|\bmanual_seed_all\s*\("
    rb"|(?<!def )(?<![\w])(?!(?:manual_|initial_|get_|random_|base_|worker_|make_|generate_)*seed\s*\()"
    rb"(?:seed_\w+|\w+_seeds?|\w+_seed_\w+|[a-z]+Seed)\s*\(",
    re.MULTILINE,
)
"""Calls that seed torch's global generator, by their names."""
SEEDING_LIBRARIES = re.compile(
    rb"\bTrainingArguments\b|\bLightningCLI\b"
    rb"|^[ \t\"]*(?:import|from) +(?:detectron2|fairseq|mmcv|mmengine|ultralytics|recbole|paddle\w*)\b",
    re.MULTILINE,
)
"""Libraries that seed it by themselves."""
SEEDING_FUNCTION = re.compile(rb"^def (\w*(?:seed|determin|reproduc)\w*)", re.MULTILINE | re.IGNORECASE)
IMPORT = re.compile(
    rb"^[ \t\"]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^#\n]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)


def find_unseeded_files(paths: Iterable[str], files: Sequence[str]) -> set[str]:
    """Those of the files under a folder among the paths that neither seed nor are run by a program that does.

    A file that is named by itself is left out: what seeds may lie elsewhere.
    """
    found: set[str] = set()
    for folder in (os.path.normpath(path) for path in paths if os.path.isdir(path)):
        inside = [one for one in files if folder == "." or one.startswith(folder.rstrip(os.sep) + os.sep)]
        found.update(_find_unseeded_in_project({one: _read(one) for one in inside}, folder))
    return found


def _read(file: str) -> bytes:
    """The text of a file, without its comments: what is commented out seeds nothing."""
    try:
        text = read_regular_file(file, LARGEST_BYTES)
    except OSError:
        return b""
    return re.sub(rb"#[^\n]*", b"", text) if file.endswith(".py") else text


def _find_unseeded_in_project(texts: Mapping[str, bytes], folder: str) -> set[str]:
    unused = _find_unused_seeding(texts)
    used = {file: _without_functions(text, unused) for file, text in texts.items()}
    seeding = {file for file, text in used.items() if _seeds_torch(text)}
    idle = {file for file in texts.keys() - seeding if used[file] != texts[file]}  # all that it seeds, nobody asks for
    programs = {one for one in seeding if not _is_test(os.path.relpath(one, folder))}
    if not programs:
        return texts.keys() - seeding
    imports = _find_imports(texts)
    importers: dict[str, set[str]] = defaultdict(set)
    for file, imported in imports.items():
        for one in imported:
            importers[one].add(file)
    seeded = seeding | _list_reachable(_list_reachable(programs, importers), imports)
    # nobody is seen to import it: a registry or a configuration may, of a program at the root or in the same part
    parts = {_part_of_project(one, folder) for one in programs if one.endswith(".py")}
    alone = {
        file for file, text in texts.items()
        if not importers[file] and b"__main__" not in text and parts & {"", _part_of_project(file, folder)}
    }  # fmt: skip
    return (texts.keys() - seeded - alone) | idle


def _seeds_torch(text: bytes) -> bool:
    # the search is slow, and few lines speak of seeds
    lines = text.split(b"\n") if b"seed" in text or b"Seed" in text else []
    told = b"\n".join(line for line in lines if b"seed" in line or b"Seed" in line)
    return bool(SEEDS.search(told) or SEEDING_LIBRARIES.search(text))


def _find_unused_seeding(texts: Mapping[str, bytes]) -> set[bytes]:
    """The functions that seed, by their names, and that nothing in a project mentions but imports."""
    defined = {name for text in texts.values() for name in SEEDING_FUNCTION.findall(text)}
    return {name for name in defined if not any(name in text and _uses(text, name) for text in texts.values())}


def _uses(text: bytes, name: bytes) -> bool:
    for found in re.finditer(rb"(?<!def )\b%s\b" % name, text):
        start = found.start()
        if b"import " not in text[max(text.rfind(b"\n", 0, start), start - 100, 0) : start]:
            return True
    return False


def _without_functions(text: bytes, names: set[bytes]) -> bytes:
    """A text without the functions of these names that begin at the start of a line, as Python has them."""
    for name in names:
        if b"def " + name in text:
            text = re.sub(rb"^def %s\b.*?(?=^[^\s)]|\Z)" % name, b"", text, flags=re.MULTILINE | re.DOTALL)
    return text


def _part_of_project(path: str, folder: str) -> str:
    """The first folder on the way to a file; `` for a file that lies at the root."""
    return "".join(PurePath(os.path.relpath(path, folder)).parts[:-1][:1])


def _is_test(path: str) -> bool:
    parts = PurePath(path).parts
    return "tests" in parts[:-1] or parts[-1].startswith("test_") or parts[-1] == "conftest.py"


def _list_reachable(begin: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    seen = set(begin)
    todo = list(seen)
    while todo:
        for one in edges.get(todo.pop(), ()):
            if one not in seen:
                seen.add(one)
                todo.append(one)
    return seen


def _find_imports(texts: Mapping[str, bytes]) -> dict[str, set[str]]:
    """For each file, the files whose paths end like the modules that it imports."""
    by_name: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
    for file in texts:
        path = PurePath(file)
        parts = path.parts[:-1] if path.name == "__init__.py" else (*path.parts[:-1], path.stem)
        if parts and path.suffix == ".py":
            by_name[parts[-1]].append((parts, file))
    return {
        file: {
            other
            for module in _list_imported_modules(text)
            for parts, other in by_name.get(module[-1], ())
            if parts[-len(module) :] == module and other != file
        }
        for file, text in texts.items()
    }


def _list_imported_modules(text: bytes) -> Iterator[tuple[str, ...]]:
    """The modules that a text may import, as tuples of names: of `from a.b import c` both a.b and a.b.c."""
    for module, names, plain in IMPORT.findall(text):
        for whole in plain.decode("latin-1").split(","):
            if parts := re.findall(r"[\w.]+", whole)[:1]:
                yield tuple(one for one in parts[0].split(".") if one) or ("",)
        base = tuple(one for one in module.decode("latin-1").split(".") if one)
        if base:
            yield base
        for name in re.findall(r"(?:^|[(,\n])\s*(\w+)", names.decode("latin-1")):
            yield (*base, name)
