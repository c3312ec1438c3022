"""Which files are run by programs that seed nothing.

An order that only draws can make count does no harm where nothing seeds them. Files are searched as bytes, and imports
are followed by name: to parse every file a second time would take as long as the rules do.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from samerun.base.files import read_regular_file
from samerun.base.source_edits import LARGEST_BYTES
from samerun.lint.project_calls import ProjectCalls, find_imports, find_packaged, list_reachable
from samerun.lint.source_files import CONFIGURATIONS, read_code_cells
from samerun.lint.source_index import FileInProject

SEEDS = re.compile(
    rb"(?:\b(?:torch|th)(?:\.random|\.cuda)?\.|^\s*)manual_seed(?:_all)?\s*\(|\bmanual_seed_all\s*\("
    rb"|(?<!def )(?<![\w])(?!(?:manual_|initial_|get_|random_|base_|worker_|make_|generate_)*seed\s*\()"
    rb"(?:seed_\w+|\w+_seeds?|\w+_seed_\w+|[a-z]+Seed)\s*\(",
    re.MULTILINE,
)
"""Calls that seed torch's global generator, by their names."""
SEEDING_LIBRARIES = re.compile(
    rb"\bTrainingArguments\b|\bLightningCLI\b"
    rb"|^[ \t]*(?:import|from) +(?:detectron2|fairseq|mmcv|mmengine|ultralytics|recbole|paddle\w*)\b",
    re.MULTILINE,
)
"""Libraries that seed it by themselves."""


REPLACED = re.compile(rb"(?<=[\w\])])(?<!\bself)(?<!\bcls)\.(\w*(?:rng|rand|gen)\w*)[ \t]*=(?!=)")
"""An attribute that who has the object gives another generator: `dataset.rng = ...`."""


def find_facts_of_files_below_folders(
    paths: Iterable[str], files: Sequence[str], configurations: Sequence[str]
) -> dict[str, FileInProject]:
    """What is known of those files that lie under a folder among the paths.

    A file that is named by itself is left out: what seeds, and what calls its functions, may lie elsewhere.
    """
    found: dict[str, FileInProject] = {}
    for folder in (os.path.normpath(path) for path in paths if os.path.isdir(path)):
        inside = [one for one in files if _is_below(one, folder)]
        texts = {one: _read_code_without_comments_or_empty(one) for one in inside}
        others = {one: _read_code_without_comments_or_empty(one) for one in configurations if _is_below(one, folder)}
        imports = find_imports(texts)
        tests = {one for one in inside if _is_test(os.path.relpath(one, folder))}
        calls = ProjectCalls({**texts, **others}, imports, tests, find_packaged({**texts, **others}))
        unseeded = _find_unseeded_in_project(texts, imports, calls, folder)
        replaced = frozenset(
            name.decode("latin-1") for text in texts.values() if b"rng" in text or b"rand" in text or b"gen" in text
            for name in REPLACED.findall(text)
        )  # fmt: skip
        for one in inside:
            definitions_unused_by_living_code = frozenset(
                name.decode("latin-1") for name in calls.definitions_unused_by_living_code[one]
            )
            found[one] = FileInProject(
                is_seeded=one not in unseeded,
                definitions_unused_by_living_code=definitions_unused_by_living_code,
                replaced=replaced,
            )
    return found


def _is_below(file: str, folder: str) -> bool:
    return folder == "." or file.startswith(folder.rstrip(os.sep) + os.sep)


TRIPLE_QUOTED = re.compile(rb"(\"\"\"|''').*?\1", re.DOTALL)


def _read_code_without_comments_or_empty(file: str) -> bytes:
    """The code of a file, without comments and docstrings: what stands there neither seeds nor calls anything."""
    try:
        text = read_regular_file(file, LARGEST_BYTES)
        if file.endswith(".ipynb"):
            text = "\n".join(source for _, source in read_code_cells(text)).encode("utf-8", "surrogatepass")
    except (OSError, ValueError, RecursionError, TypeError, AttributeError, LookupError):
        return b""
    text = re.sub(rb"#[^\n]*", b"", text)
    return text if file.endswith(CONFIGURATIONS) else TRIPLE_QUOTED.sub(_replace_docstring_with_pass, text)


def _replace_docstring_with_pass(found: re.Match[bytes]) -> bytes:
    """Nothing for a text with which a line begins; others may be looked up."""
    before = found.string[found.string.rfind(b"\n", 0, found.start()) + 1 : found.start()]
    return found[0] if before.strip(b" \trRuU") else b"pass"


def _find_unseeded_in_project(
    texts: Mapping[str, bytes], imports: Mapping[str, set[str]], calls: ProjectCalls, folder: str
) -> set[str]:
    """The files that neither seed nor are run by a program that does."""
    seeding = {file for file in texts if _seeds_torch(calls.keep_living(file))}
    idle = {file for file in texts.keys() - seeding if _seeds_torch(texts[file])}  # all that it seeds, nobody asks for
    programs = {one for one in seeding if not _is_test(os.path.relpath(one, folder))}
    if not programs:
        return texts.keys() - seeding
    importers: dict[str, set[str]] = defaultdict(set)
    for file, imported in imports.items():
        for one in imported:
            importers[one].add(file)
    seeded = seeding | list_reachable(list_reachable(programs, importers), imports)
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


def _part_of_project(path: str, folder: str) -> str:
    """The first folder on the way to a file; `` for a file that lies at the root."""
    return "".join(PurePath(os.path.relpath(path, folder)).parts[:-1][:1])


def _is_test(path: str) -> bool:
    parts = PurePath(path).parts
    return "tests" in parts[:-1] or parts[-1].startswith("test_") or parts[-1] == "conftest.py"
