"""Edits that fix a seed which is another one in every run, or give one to a generator that has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property

from samerun.base.source_edits import (
    Edit,
    SourceAtLine,
    find_imported_name_of_module,
    last_identifier,
    make_seed_argument_edits,
    node_span,
)

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


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class SeedEditor:
    """Edits of the seeds of one file, which know where a call stands: what they look up is looked up once.

    parents: of every node of the tree, if known already.
    """

    def __init__(self, tree: ast.Module, parents: Mapping[ast.AST, ast.AST] | None = None) -> None:
        self.tree = tree
        self.parents = (
            {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
            if parents is None
            else parents
        )

    def make_edits_seeding_unseeded_call(self, call: ast.Call) -> list[Edit]:
        """A seed for a call that has none: 0; the worker's, or a drawn one, where 0 would make them all alike."""
        if not self.is_in_worker_init_function(call) and not self.is_in_loop_or_per_sample_function(call):
            return make_seed_argument_edits(call)
        seed = SEED_OF_WORKER if self.is_in_worker_init_function(call) else DRAWN_SEED
        return make_seed_argument_edits(call, seed) if self._imports_torch else []

    def make_edits_fixing_changing_parts(self, seed: ast.expr) -> list[Edit]:
        """0 in place of those parts of a seed that change from run to run, if that makes no samples or trials alike."""
        parts = list(_find_changing_parts(seed))
        if parts != [seed]:
            return [Edit(*node_span(part), "0") for part in parts]
        if self.is_in_worker_init_function(seed):
            return self.make_edits_replacing_with_worker_seed(seed)
        return [] if self.is_in_loop_or_per_sample_function(seed) else [Edit(*node_span(seed), "0")]

    def make_edits_replacing_with_worker_seed(self, seed: ast.expr) -> list[Edit]:
        """The worker's own seed in place of one that all workers get; nothing where no worker begins with it."""
        return (
            [Edit(*node_span(seed), SEED_OF_WORKER)]
            if self.is_in_worker_init_function(seed) and self._imports_torch
            else []
        )

    def is_in_loop_or_per_sample_function(self, node: ast.AST) -> bool:
        """Whether it stands in a loop, or in a function that is called for every sample, batch or step."""
        return any(
            isinstance(one, (*LOOPS, ast.Lambda)) or getattr(one, "name", "") in PER_SAMPLE_FUNCTIONS
            for one in self._list_ancestors_up_to_function(node)
        )

    def is_in_worker_init_function(self, node: ast.AST) -> bool:
        """Whether a loader's workers begin with the function around it: by its name, or as the file says."""
        name = next((getattr(one, "name", "") for one in self._list_ancestors_up_to_function(node)[-1:]), "")
        return "worker_init" in name or "init_worker" in name or name in self._worker_functions

    def _list_ancestors_up_to_function(self, node: ast.AST) -> list[ast.AST]:
        """The nodes around one, up to its function: the innermost first."""
        found: list[ast.AST] = []
        while node in self.parents and not (found and isinstance(node, FUNCTIONS)):
            node = self.parents[node]
            found.append(node)
        return found

    @cached_property
    def _worker_functions(self) -> set[str]:
        """The last names of what the file passes as worker_init_fn."""
        given = [k.value for k in ast.walk(self.tree) if isinstance(k, ast.keyword) and k.arg == "worker_init_fn"]
        return {last_identifier(one) for one in given} - {""}

    @cached_property
    def _imports_torch(self) -> bool:
        return find_imported_name_of_module(self.tree, "torch") == "torch"


def make_fixed_seed_edits(source: SourceAtLine) -> list[Edit]:
    """0 in place of what changes from run to run: in the seed of a call, or in what a variable named like a seed gets.

    What the user gave stays (`args.seed or time.time()`, `rank + os.getpid()`). Nothing is changed where one number
    would make samples or trials alike.
    """
    for call in source.calls_spanning_line(*SEEDING_FUNCTIONS):
        given = next((k.value for k in call.keywords if k.arg == "seed"), call.args[0] if call.args else None)
        if given is not None:
            return SeedEditor(source.tree).make_edits_fixing_changing_parts(given)
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or node.lineno != source.line:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all("seed" in last_identifier(target).lower() for target in targets):
            return SeedEditor(source.tree).make_edits_fixing_changing_parts(node.value)
    return []


def _find_changing_parts(node: ast.AST) -> Iterator[ast.expr]:
    """The largest expressions that call a changing function and use no variable beside."""
    if not any(isinstance(part, ast.Call) and _calls_function_varying_by_run(part) for part in ast.walk(node)):
        return
    if isinstance(node, ast.expr) and not _uses_variable_outside_changing_calls(node):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _find_changing_parts(child)


def _calls_function_varying_by_run(call: ast.Call) -> bool:
    return last_identifier(call.func) in CHANGING_FUNCTIONS


def _uses_variable_outside_changing_calls(node: ast.AST) -> bool:
    """Whether a name stands in it that is neither called nor an argument of a changing function."""
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.Call):
        inner = node.func
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        called = [] if isinstance(inner, ast.Name) else [inner]
        arguments = [] if _calls_function_varying_by_run(node) else [*node.args, *node.keywords]
        return any(_uses_variable_outside_changing_calls(part) for part in [*called, *arguments])
    return any(_uses_variable_outside_changing_calls(child) for child in ast.iter_child_nodes(node))
