"""Draw function signatures at random, to see whether a reader can tell from a name what a function does.

python tools/guess.py 7              40 signatures drawn with seed 7
python tools/guess.py 7 --count 100  100 of them

Prints path, qualified name and signature of functions and methods of src/samerun and of C functions of native, without
docstrings and bodies. CONTRIBUTING.md says how guesses are scored. The same seed draws the same signatures from the
same sources, whatever the order in which the file system lists them.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
C_SUFFIXES = {".c", ".h", ".inc", ".cu"}
C_DEFINITION = re.compile(
    r"^(?P<result>[A-Za-z_][\w \t*]*?[\s*])(?P<name>[A-Za-z_]\w*)\s*\((?P<parameters>[^(){};]*)\)\s*\{", re.MULTILINE
)
"""A definition at the beginning of a line. Functions whose parameters are function pointers are not found."""
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
NOT_FUNCTIONS = {"if", "for", "while", "switch", "return", "sizeof"}


def list_python_functions(path: Path) -> Iterator[str]:
    """Yield the signature of every function and method of a file, with the names of the classes around it.

    Functions inside functions are left out: nobody meets them without their surroundings. So are methods whose names
    Python prescribes (`__init__`, `__enter__`): their names were not chosen.
    """

    def visit(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("__"):
                result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                yield f"{prefix}{node.name}({ast.unparse(node.args)}){result}"
            elif isinstance(node, (ast.If, ast.Try)):
                yield from visit(node.body + node.orelse, prefix)

    return visit(ast.parse(path.read_text(encoding="utf-8")).body, "")


def list_c_functions(path: Path) -> Iterator[str]:
    """Yield the signature of every function that is defined in a C file."""
    text = C_COMMENT.sub(" ", path.read_text(encoding="utf-8"))
    for found in C_DEFINITION.finditer(text):
        if found["name"] not in NOT_FUNCTIONS and not found["result"].strip().startswith(("else", "return", "typedef")):
            signature = " ".join(f"{found['result']} {found['name']}({found['parameters']})".split())
            yield signature.replace("* ", "*")


def list_signatures() -> list[str]:
    """Return "path: signature" for all functions, in an order that only the sources decide on."""
    python = (ROOT / "src" / "samerun").rglob("*.py")
    native = (path for path in (ROOT / "native").rglob("*") if path.suffix in C_SUFFIXES and "tests" not in path.parts)
    listed = [(path, each) for path in python for each in list_python_functions(path)]
    listed += [(path, each) for path in native for each in list_c_functions(path)]
    return sorted({f"{path.relative_to(ROOT).as_posix()}: {signature}" for path, signature in listed})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw function signatures at random.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=40, help="number of signatures (40)")
    options = parser.parse_args(arguments)
    signatures = list_signatures()
    drawn = random.Random(options.seed).sample(signatures, min(options.count, len(signatures)))
    for number, signature in enumerate(sorted(drawn), 1):
        print(f"{number:3}. {signature}")


if __name__ == "__main__":
    main()
