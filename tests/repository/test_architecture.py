"""The rules of ARCHITECTURE.md, read off the imports of every file."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from fresh_process import loaded_modules
from repository_paths import ROOT

SRC = ROOT / "src"
FILES = sorted((SRC / "samerun").rglob("*.py"))
MOST_LINES = 400

# A room may import itself and what stands here. Faces may import everything.
BELOW = {
    "check": {"record", "base"},
    "lint": {"base"},
    "report": {"base"},
    "record": {"base"},
    "data": {"control", "base"},
    "numerics": {"control", "base"},
    "control": {"base"},
    "base": set(),
    # Adapters go by the public names, as their users do.
    "adapters": {"check", "record", "control", "base"},
}
FACES = {
    "samerun", "samerun.cli", "samerun.__main__", "samerun.receipt_block", "samerun.batch_invariance",
    "samerun.step_guard", "samerun.peer_check", "samerun.step_computation", "samerun.step_replay",
}  # fmt: skip
COMMANDS = "commands"
"""The room of the faces that bring other rooms together: each a command of the command line."""
FLOORS = {
    "check": ("neutral", "search", "attribution", "causes", "evidence", "execution", "variations"),
    "record": ("receipt", "watching", "comparison", "digests", "trace"),
    "control": ("startup", "determinism", "rng", "switches", "deterministic_kernels", "seeds", "streams"),
    "numerics": ("verification", "dispatch", "aten_handlers", "kernels", "cuda", "reference"),
}
"""The rooms inside a room, the uppermost first: each may import those below it, and all what lies beside them."""
TABLES = (
    "check/variations", "check/causes", "record/watching/interceptors", "control/seeds", "control/switches",
    "control/deterministic_kernels", "numerics/aten_handlers", "lint",
)  # fmt: skip


def name_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def imports_of(path: Path) -> set[str]:
    """Every module of samerun that a file imports: at load, inside functions, for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else str(node.module))
    return {name for name in found if name.split(".")[0] == "samerun"}


IMPORTS = {name: imports_of(path) for name, path in MODULES.items()}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor_of(module: str) -> int:
    """Number of a module's room inside its room, from the top; the lowest for what lies beside those rooms."""
    parts, floors = module.split("."), FLOORS[room_of(module)]
    return floors.index(parts[2]) if len(parts) > 3 else len(floors)


def members(room: str) -> set[str]:
    """What a room's table imports from its own folder, without the record's file and the like."""
    package = "samerun." + room.replace("/", ".")
    tree = ast.parse((SRC / "samerun" / room / "table.py").read_text(encoding="utf-8"))
    return {
        f"{package}.{alias.name}"
        for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == package
        for alias in node.names
    }  # fmt: skip


def test_every_room_has_its_rule() -> None:
    rooms = {path.name for path in (SRC / "samerun").iterdir() if (path / "__init__.py").exists()}
    assert rooms == {*BELOW, COMMANDS}
    faces = {name for name in MODULES if name.count(".") < 2 and room_of(name) not in rooms}
    assert faces == FACES


@pytest.mark.parametrize("room", sorted(FLOORS))
def test_rooms_in_a_room_lie_on_floors(room: str) -> None:
    folders = {path.parent.name for path in (SRC / "samerun" / room).glob("*/__init__.py")}
    assert folders == set(FLOORS[room])


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name not in FACES and room_of(name) != COMMANDS))
def test_imports_point_down(module: str) -> None:
    room = room_of(module)
    for imported in IMPORTS[module] - ({"samerun"} if room == "adapters" else set()):
        assert imported not in FACES, f"{module} imports the face {imported}"
        assert room_of(imported) in {room, *BELOW[room]}, f"{module} imports {imported}"
        if room_of(imported) == room and room in FLOORS and floor_of(module) != floor_of(imported):
            assert floor_of(module) < floor_of(imported), f"{module} imports {imported}, which lies above it"


def test_imports_name_modules_that_exist() -> None:
    for module, imported in IMPORTS.items():
        assert imported <= set(MODULES), module


def test_there_is_no_circle() -> None:
    try:
        TopologicalSorter({name: imported - {name} for name, imported in IMPORTS.items()}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("room", TABLES)
def test_members_import_neither_their_table_nor_each_other(room: str) -> None:
    everyone = members(room)
    assert len(everyone) > 1
    table = f"samerun.{room.replace('/', '.')}.table"
    for member in everyone:
        wrong = IMPORTS[member] & (everyone | {table}) - {member}
        assert not wrong, f"{member} imports {wrong}"


@pytest.mark.parametrize("room", TABLES)
def test_only_members_and_what_they_share_lie_in_a_room_with_a_table(room: str) -> None:
    package = f"samerun.{room.replace('/', '.')}"
    here = {name for name in MODULES if name.startswith(package + ".")}
    used = set().union(*IMPORTS.values())
    assert here - members(room) <= used, "a file that is neither in the table nor imported"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_files_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert path.stem not in ("utils", "util", "helpers", "misc", "common")
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_a_class_name_is_defined_once() -> None:
    """But in adapters, where each library has a class of the same public name."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        if path.parent.name != "adapters":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(f"{path.relative_to(SRC)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


HEAVY = {"torch", "numpy"}


def test_importing_samerun_imports_neither_torch_nor_numpy() -> None:
    loaded = loaded_modules("import samerun")
    assert "samerun" in loaded and not HEAVY & set(loaded)
    assert not [name for name in loaded if name.startswith("samerun.")], "its names are loaded when they are used"


def test_nor_do_the_seeds_the_base_and_the_command_line() -> None:
    program = "import samerun\n" + "\n".join(f"samerun.{name}" for name in public_names())
    base = [name for name in MODULES if name.startswith("samerun.base")]
    loaded = loaded_modules(f"{program}\nimport samerun.cli, samerun.commands.check, {', '.join(base)}")
    assert not HEAVY & set(loaded)


def public_names() -> list[str]:
    import samerun

    return list(samerun.__all__)


def test_starting_to_watch_imports_neither() -> None:
    loaded = loaded_modules("import samerun.record.watching.start")
    assert not HEAVY & set(loaded)


NATIVE = ROOT / "native"
C_FILES = sorted(path for path in NATIVE.rglob("*") if path.suffix in {".c", ".h", ".inc", ".cu"})
C_INCLUDE = re.compile(r'^\s*#include "(.*)"', re.MULTILINE)


def list_included_c_files(path: Path) -> set[Path]:
    return {(path.parent / name).resolve() for name in C_INCLUDE.findall(path.read_text(encoding="utf-8"))}


def test_c_includes_form_no_circle() -> None:
    included = {path: list_included_c_files(path) for path in C_FILES}
    missing = set().union(*included.values()) - set(C_FILES)
    assert not missing, "includes that are not there"
    try:
        TopologicalSorter(included).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of includes: {' <- '.join(path.name for path in error.args[1])}")


@pytest.mark.parametrize("path", C_FILES, ids=lambda path: str(path.relative_to(NATIVE)))
def test_c_files_include_no_c_files(path: Path) -> None:
    assert not [name for name in C_INCLUDE.findall(path.read_text(encoding="utf-8")) if name.endswith((".c", ".cu"))]
