"""Edits that fix a seed which is another one in every run, or give one to a generator that has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from samerun.base.source_edits import Edit, SourceAtLine, last_identifier, make_seed_argument_edits, node_span

SEEDING_FUNCTIONS = ("seed", "manual_seed", "manual_seed_all", "seed_everything", "set_seed", "default_rng", "Random",
           "RandomState", "SeedSequence")  # fmt: skip
CHANGING_FUNCTIONS = frozenset({
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "now", "today",
    "utcnow", "urandom", "getrandom", "uuid1", "uuid4", "token_bytes", "token_hex", "randbits", "randbelow", "getpid",
    "getppid", "seed",
})  # fmt: skip
"""Functions of clocks, processes and the system's entropy: what they return is another value in every run."""
PER_SAMPLE_FUNCTIONS = frozenset({
    "__getitem__", "__getitems__", "__call__", "__iter__", "__next__", "forward", "collate", "collate_fn", "transform",
    "augment",
})  # fmt: skip
"""Functions that are called for every sample, batch or step: one seed there would give each the same numbers."""
DRAWN_SEED = "int(torch.randint(2**31, ()))"
"""A seed of its own for each call, from a generator that one seed at the start decides."""
SEED_OF_WORKER = "torch.initial_seed() % 2**32"
"""What a worker's other generators are seeded with; the loader gives each worker another one."""


def make_fixed_seed_edits(source: SourceAtLine) -> list[Edit]:
    """0 in place of what changes from run to run: in the seed of a call, or in what a variable named like a seed gets.

    What the user gave stays (`args.seed or time.time()`, `rank + os.getpid()`). Nothing is changed where one number
    would make samples or trials alike.
    """
    for call in source.calls_spanning_line(*SEEDING_FUNCTIONS):
        given = next((k.value for k in call.keywords if k.arg == "seed"), call.args[0] if call.args else None)
        if given is not None:
            return make_changing_part_edits(source.tree, given)
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or node.lineno != source.line:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all("seed" in last_identifier(target).lower() for target in targets):
            return make_changing_part_edits(source.tree, node.value)
    return []


def make_first_seed_edits(tree: ast.Module, call: ast.Call) -> list[Edit]:
    """A seed for a call that has none: 0; one for each worker, or a drawn one, where 0 would make them all alike."""
    around = _list_enclosing_nodes(tree, call)
    if _initializes_worker(tree, around):
        return make_seed_argument_edits(call, SEED_OF_WORKER) if _imports_torch(tree) else []
    if _is_repeated(around):
        return make_seed_argument_edits(call, DRAWN_SEED) if _imports_torch(tree) else []
    return make_seed_argument_edits(call)


def make_changing_part_edits(tree: ast.Module, seed: ast.expr) -> list[Edit]:
    """0 in place of those parts of a seed that change from run to run, where that makes no samples or trials alike."""
    parts = list(_find_changing_parts(seed))
    around = _list_enclosing_nodes(tree, seed)
    if parts != [seed]:
        return [Edit(*node_span(part), "0") for part in parts]
    if _initializes_worker(tree, around):
        return make_worker_seed_edits(tree, seed)
    return [] if _is_repeated(around) else [Edit(*node_span(seed), "0")]


def make_worker_seed_edits(tree: ast.Module, seed: ast.expr) -> list[Edit]:
    """The worker's own seed in place of one that all workers get; nothing where no worker begins with it."""
    in_worker = _initializes_worker(tree, _list_enclosing_nodes(tree, seed))
    return [Edit(*node_span(seed), SEED_OF_WORKER)] if in_worker and _imports_torch(tree) else []


def is_repeated(tree: ast.Module, node: ast.AST) -> bool:
    """Whether it stands in a loop, or in a function that is called for every sample, batch or step."""
    return _is_repeated(_list_enclosing_nodes(tree, node))


def _find_changing_parts(node: ast.AST) -> Iterator[ast.expr]:
    """The largest expressions that call a changing function and use no variable beside."""
    if not any(isinstance(part, ast.Call) and _is_changing(part) for part in ast.walk(node)):
        return
    if isinstance(node, ast.expr) and not _uses_variable(node):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _find_changing_parts(child)


def _is_changing(call: ast.Call) -> bool:
    return last_identifier(call.func) in CHANGING_FUNCTIONS


def _uses_variable(node: ast.AST) -> bool:
    """Whether a name stands in it that is neither called nor an argument of a changing function."""
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.Call):
        inner = node.func
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        called = [] if isinstance(inner, ast.Name) else [inner]
        arguments = [] if _is_changing(node) else [*node.args, *node.keywords]
        return any(_uses_variable(part) for part in [*called, *arguments])
    return any(_uses_variable(child) for child in ast.iter_child_nodes(node))


# --- where a call stands ----------------------------------------------------------------------------------
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _list_enclosing_nodes(tree: ast.Module, node: ast.AST) -> list[ast.AST]:
    """The nodes around one of the file, up to its function: the innermost first."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    found: list[ast.AST] = []
    while node in parents:
        node = parents[node]
        found.append(node)
        if isinstance(node, FUNCTIONS):
            break
    return found


def _is_repeated(around: Sequence[ast.AST]) -> bool:
    return any(
        isinstance(node, (*LOOPS, ast.Lambda)) or getattr(node, "name", "") in PER_SAMPLE_FUNCTIONS for node in around
    )


def _initializes_worker(tree: ast.Module, around: Sequence[ast.AST]) -> bool:
    """Whether a loader's workers begin with the function: by its name, or as the file says."""
    name = getattr(around[-1], "name", "") if around else ""
    given = [k.value for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "worker_init_fn"]
    return "worker_init" in name or "init_worker" in name or any(name and last_identifier(one) == name for one in given)


def _imports_torch(tree: ast.Module) -> bool:
    names = [name for node in tree.body if isinstance(node, ast.Import) for name in node.names]
    return any(name.name.partition(".")[0] == "torch" and not name.asname for name in names)
