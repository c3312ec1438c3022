"""Which files of a project import which, and which functions nothing calls.

What stands in them changes no result. Files are searched as bytes, as by `project_seeding`, and whatever mentions a
name may call it: only what is never mentioned is left out.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePath

IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^#\n]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
NOT_CALLS = re.compile(
    IMPORT.pattern + rb"|\b(?:def|class)[ \t]+\w+|^__all__[ \t]*\+?=[ \t]*[\[(][^\])]*", re.MULTILINE
)
"""What mentions a function and does not use it."""
LOCAL_NAME = re.compile(rb"^[ \t]+(\w+)[ \t]*=(?!=)", re.MULTILINE)
KEYWORD = re.compile(rb"(?<=[(,])\s*\w+[ \t]*=(?!=)")
PACKAGING = {
    "setup.py": re.compile(rb"\bsetup\s*\("),
    "setup.cfg": re.compile(rb"^\[(?:metadata|options)\]", re.MULTILINE),
    "pyproject.toml": re.compile(rb"^\[(?:project|tool\.poetry)\]", re.MULTILINE),
}
"""Files that make a folder one which is installed, so that others call what it exports."""
STATEMENT = re.compile(rb"^(?=[^\s)\]}'\"#])", re.MULTILINE)
DEFINITION = re.compile(rb"(?:(?:async )?def|class) (\w+)")
METHOD = re.compile(rb"^[ \t]+(?:async )?def (\w+)", re.MULTILINE)
WORD = re.compile(rb"[A-Za-z_]\w*")
CALLED_BY_NAME = re.compile(rb"\bFire\(\s*\)|\bglobals\(\)|\b__getattr__\b")
"""What calls the functions of a file without their names."""
CALLED_FUNCTION = re.compile(rb"[\w.]+(?=\()")
SEEDING_OR_SHOWING = re.compile(rb"\w*(?:seed|determin|reproduc)\w*|print|(?:torch|np|numpy|random)\..*", re.IGNORECASE)
CALLED_FROM_OUTSIDE = {b"main", b"cli"}
"""Functions that the command line starts."""


class ProjectCalls:
    """The functions of some texts, and where they are mentioned.

    `imports`: what `find_imports` gives of them. `tests`: those of them that only try the others out. `packaged`: those
    whose exports others call.
    """

    def __init__(
        self, texts: Mapping[str, bytes], imports: Mapping[str, set[str]], tests: set[str], packaged: set[str]
    ) -> None:
        self.imports, self.tests, self.packaged = imports, tests, packaged
        self._reached: dict[str, set[str]] = {}
        self.parts = {file: list(_split_statements(text)) for file, text in texts.items()}
        self.methods = {file: set(METHOD.findall(text)) for file, text in texts.items()}
        self.sources = {file: _list_import_sources(text) for file, text in texts.items()}
        self.dynamic = {file for file, text in texts.items() if CALLED_BY_NAME.search(text)}

    @cached_property
    def definitions_unused_by_living_code(self) -> dict[str, set[bytes]]:
        """For each file, its functions, classes and methods that no living part of any file mentions."""
        defined = {file: {name for name, _ in parts if name} for file, parts in self.parts.items()}
        places: dict[bytes, set[str]] = defaultdict(set)
        for file, names in defined.items():
            for name in names:
                places[name].add(file)
        known = {*places} | {name for names in self.methods.values() for name in names}
        users: dict[bytes, list[tuple[str, bytes]]] = defaultdict(list)
        for file in self.parts.keys() - self.tests:
            for own, part in self.parts[file]:
                if _is_main_block_only_seeding_or_showing(part):
                    continue
                for name in self._find_known_names_used_in(file, part, known):
                    users[name].append((file, own))
        dead: dict[str, set[bytes]] = {file: set() for file in self.parts}
        static = self.parts.keys() - self.dynamic
        left = {(file, name) for file in static for name in defined[file] | self.methods[file]}
        while found := {one for one in left if not self._is_called(*one, users[one[1]], places, dead)}:
            left -= found
            for file, name in found:
                dead[file].add(name)
        return dead

    def _find_known_names_used_in(self, file: str, part: bytes, known: set[bytes]) -> set[bytes]:
        """The known names that a part of a file mentions; not by a keyword or a variable that has the same name."""
        init = os.path.basename(file) == "__init__.py"

        def keep(found: re.Match[bytes]) -> bytes:
            exports = found[0].startswith(b"__all__") or (init and bool(IMPORT.match(found[0])))
            return found[0] if exports and file in self.packaged else _keep_names_imported_under_alias(found)

        text = NOT_CALLS.sub(keep, part)
        mentioned = known.intersection(WORD.findall(text))
        if not mentioned:
            return mentioned
        text = KEYWORD.sub(b" ", text)
        mentioned &= {*WORD.findall(text)}
        local = mentioned.intersection(LOCAL_NAME.findall(text))
        calls = {one for one in local if re.search(rb"\." + one + rb"\b|\b" + one + rb"\(", text)}
        return mentioned - local | calls

    def _is_called(
        self, file: str, name: bytes, users: list[tuple[str, bytes]], places: Mapping[bytes, set[str]],
        dead: Mapping[str, set[bytes]],
    ) -> bool:  # fmt: skip
        if name in CALLED_FROM_OUTSIDE:
            return True
        for user, own in users:
            if own in dead[user] or (user == file and own == name):
                continue
            if name in self.methods[file] or len(places[name]) == 1:
                return True
            nearest = places[name] & self.imports.get(user, set())
            if name not in self.sources[user] and (user in places[name] or name in self.methods[user]):
                nearest |= {user}
            if nearest and file not in nearest:
                continue  # it means its own function, or that of a module which it imports itself
            if user not in self._reached:
                self._reached[user] = list_reachable([user], self.imports)
            seen = self._reached[user]
            if file in seen:
                return True
            # a file that sees another function of this name, or imports it from elsewhere, means that one
            if not seen & places[name] and not self._is_imported_from_elsewhere(user, name, file):
                return True
        return False

    def _is_imported_from_elsewhere(self, user: str, name: bytes, file: str) -> bool:
        """Whether a file gets a name from modules of which none is called like this file, or a folder around it."""
        modules = self.sources[user].get(name, set())
        around = {*PurePath(file).with_suffix("").parts}
        return bool(modules) and file not in self.packaged and all(one and around.isdisjoint(one) for one in modules)

    def keep_living(self, file: str) -> bytes:
        """The text of a file without the functions and classes at its top that nothing uses."""
        return b"".join(
            part for name, part in self.parts[file] if name not in self.definitions_unused_by_living_code[file]
        )


def _is_main_block_only_seeding_or_showing(part: bytes) -> bool:
    """Whether a part is a main block that seeds, and does no more than show what is drawn then."""
    return part.startswith(b"if __name__") and all(map(SEEDING_OR_SHOWING.fullmatch, CALLED_FUNCTION.findall(part)))


def _list_import_sources(text: bytes) -> dict[bytes, set[tuple[str, ...]]]:
    """The names that a text imports from modules, each with the parts of the modules' names."""
    sources: dict[bytes, set[tuple[str, ...]]] = defaultdict(set)
    for module, names, _ in IMPORT.findall(text):
        parts = tuple(one for one in module.decode("latin-1").split(".") if one)
        for name in WORD.findall(names):
            sources[name].add(parts)
    return sources


def _keep_names_imported_under_alias(found: re.Match[bytes]) -> bytes:
    """What an import gives another name: a call of that is not looked for."""
    return b" ".join(re.findall(rb"\w+(?=[ \t]+as\b)", found[0]))


def _split_statements(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The statements at the top of a text, each behind what it defines without a decorator, or b""."""
    decorated = False
    for part in STATEMENT.split(text):
        definition = DEFINITION.match(part)
        yield (definition[1] if definition and not decorated else b""), part
        decorated = part.startswith(b"@")


def find_packaged(texts: Mapping[str, bytes]) -> set[str]:
    """The files in folders that are installed."""
    roots = [
        os.path.join(os.path.dirname(file), "") for file, text in texts.items()
        if (sign := PACKAGING.get(os.path.basename(file))) is not None and sign.search(text)
    ]  # fmt: skip
    return {file for file in texts if file.startswith(tuple(roots))}


def list_reachable(begin: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    seen = set(begin)
    todo = list(seen)
    while todo:
        for one in edges.get(todo.pop(), ()):
            if one not in seen:
                seen.add(one)
                todo.append(one)
    return seen


def find_imports(texts: Mapping[str, bytes]) -> dict[str, set[str]]:
    """For each file, the files whose paths end like the modules that it imports; of several, the nearest."""
    by_name: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
    for file in texts:
        path = PurePath(file)
        parts = path.parts[:-1] if path.name == "__init__.py" else (*path.parts[:-1], path.stem)
        if parts and path.suffix == ".py":
            by_name[parts[-1]].append((parts, file))
    found: dict[str, set[str]] = {}
    for file, text in texts.items():
        found[file] = set()
        for module in _list_imported_modules(text):
            fitting = [
                (other, parts) for parts, other in by_name.get(module[-1], ()) if parts[-len(module) :] == module
            ]
            near = {other: (len(os.path.commonpath((file, other))), -len(parts)) for other, parts in fitting}
            near.pop(file, None)
            found[file] |= {other for other, shared in near.items() if shared == max(near.values())}
    return found


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
