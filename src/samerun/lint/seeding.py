"""How a text seeds its generators: by which calls, for whom, and where a generator is only a fallback."""

from __future__ import annotations

import ast
import re

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import is_constant, keyword_value
from samerun.lint.random_draws import drawn_generator
from samerun.lint.source_index import FUNCTIONS, SourceIndex
from samerun.lint.value_origins import find_origins

NUMPY_GENERATORS = tuple(
    f"numpy.random.{name}"
    for name in ("default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
)
GLOBAL_SEEDS = {
    "random.seed": "python", "numpy.random.seed": "numpy", "torch.manual_seed": "torch", "torch.seed": "torch",
    "numpy.random.set_state": "numpy", "random.setstate": "python", "torch.set_rng_state": "torch",
}  # fmt: skip

CLOCKS = {"time.time", "time.time_ns", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.clock",
          "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.now", "datetime.date.today"}  # fmt: skip
ENTROPY = {"os.urandom", "uuid.uuid4", "uuid.uuid1", "os.getpid", "secrets.randbits", "secrets.randbelow",
           "secrets.token_bytes", "secrets.token_hex", "random.SystemRandom", "torch.seed",
           "multiprocessing.current_process", "threading.get_ident"}  # fmt: skip


def seeds_repeatably(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call of a seeding function gets a seed, and not one of the clock, of the entropy, or a drawn one."""
    if not call.args:
        return bool(call.keywords)
    names = [index.call_names[one] for one in find_origins(index, call.args[0])]
    return not any(one in CLOCKS | ENTROPY or drawn_generator(one) for one in names)


def has_seeding_call_or_argument(index: SourceIndex) -> bool:
    """Whether the text seeds what draws in it: a generator, a split, an estimator, or everything by another module."""
    makers = [
        one for one in index.calls_of(*NUMPY_GENERATORS, "random.Random", *GLOBAL_SEEDS)
        if not is_in_dead_code(index, one)
    ]  # fmt: skip
    return (
        any(one.args and seeds_repeatably(index, one) for one in makers)
        or any(index.call_names[one] != "torch.manual_seed" for one in index.calls_by_last_name.get("manual_seed", ()))
        or any(keyword_value(one, "random_state", "seed") is not None for one in index.calls)
        or calls_unknown_seeding(index)
    )


def is_single_seeding_outside_loops(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call seeds once, for all: not a part of a class, and not at each turn of a loop."""
    repeated = (ast.ClassDef, ast.For, ast.While)
    function = index.enclosing_def(call)
    same = [one for one in index.calls_by_name[index.call_names[call]] if index.enclosing_def(one) is function]
    if function is not None and len(same) > 1:
        return False  # it seeds for one purpose, and then again
    return not any(isinstance(one, repeated) for one in index.ancestors(call))


def has_main_guard_or_top_level_block(index: SourceIndex) -> bool:
    """Whether the text is a script: it has a main block, or loops at its top."""
    for node in index.tree.body:
        names = (
            {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)} if isinstance(node, ast.If) else set()
        )
        if "__name__" in names or isinstance(node, (ast.For, ast.While, ast.With)):
            return True
    return False


def is_never_called(index: SourceIndex, node: ast.AST, depth: int = 3) -> bool:
    """Whether a node stands in a function that nothing in the text mentions, or only others like it: left over."""
    outermost = [one for one in index.ancestors(node) if isinstance(one, FUNCTIONS)][-1:]
    if not outermost or outermost[0].decorator_list or not depth:
        return False
    name = outermost[0].name
    if any(isinstance(one, ast.Attribute) and one.attr == name for one in index.nodes[ast.Attribute]):
        return False
    return all(is_never_called(index, one, depth - 1) for one in index.name_loads.get(name, ()))


def is_in_dead_code(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands in a function that is never called, of a text that nothing imports."""
    return (index.is_notebook or has_main_guard_or_top_level_block(index)) and is_never_called(index, node)


def calls_unknown_seeding(index: SourceIndex) -> bool:
    """Whether the text calls a function of another module that may seed everything."""
    known = ("seed", "manual_seed", "manual_seed_all")
    for last, calls in index.calls_by_last_name.items():
        named = re.search("seed|determin|reproduc", last, re.IGNORECASE)
        if named and last not in known and any(index.called_function(call) is None for call in calls):
            return True
    return any(
        (name.endswith(".seed") and name not in GLOBAL_SEEDS)
        or name.startswith("hyperpyyaml.")  # which calls what it reads
        for name in index.calls_by_name
    )


def reads_hash_seed(index: SourceIndex) -> bool:
    """Whether the text asks for PYTHONHASHSEED, so that its hashes can be taken to be the same in every run."""
    return any(
        isinstance(index.parents.get(one), (ast.Compare, ast.Call))
        or (isinstance(above := index.parents.get(one), ast.Subscript) and isinstance(above.ctx, ast.Load))
        for one in index.nodes[ast.Constant]
        if is_constant(one, "PYTHONHASHSEED") and last_identifier(index.parents[one]) not in ("putenv", "setdefault")
    )


SEED_MAKER = re.compile(r"(?:random|rand|generate|make|new|fresh|auto)\w*(?:seed|state)$")
"""Names of functions that are there to find a seed for who gives none."""
CHOICE_WORDS = re.compile(
    r"seed|rng|random_state|generator|determin|reproduc|random_number|prng|manual|np_random", re.IGNORECASE
)


def is_fallback(index: SourceIndex, node: ast.AST, depth: int = 2) -> bool:
    """Whether a node is used only where the caller gave no seed or generator: `rng or default_rng()`.

    So is what stands in a function that this text calls only there.
    """
    child = node
    for one in index.ancestors(node):
        if isinstance(one, ast.BoolOp) and isinstance(one.op, ast.Or) and child is not one.values[0]:
            return True
        if isinstance(one, (ast.ExceptHandler, ast.arguments)):
            return True
        if isinstance(one, ast.stmt):
            break
        child = one
    if any(asks_for_seed(test) for test in index.enclosing_tests(node)) or _follows_return_on_seed_or_none_in_block(
        index, node
    ):
        return True
    function = index.enclosing_def(node) if depth else None
    if function is not None and SEED_MAKER.search(function.name):
        return True
    callers = index.calls_of_function(function) if function is not None else []
    return bool(callers) and all(is_fallback(index, one, depth - 1) for one in callers)


def asks_for_seed(test: ast.expr) -> bool:
    """Whether a condition is about a seed or a generator, or about None."""
    for node in ast.walk(test):
        if isinstance(node, (ast.Name, ast.Attribute)) and CHOICE_WORDS.search(last_identifier(node)):
            return True
        if isinstance(node, ast.Constant) and (node.value is None or "seed" in str(node.value).lower()):
            return True
    return False


def _follows_return_on_seed_or_none_in_block(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a condition on a seed or None has returned before, in the same block."""
    statement = index.statement_of(node)
    for block in (getattr(index.parents.get(statement), name, None) for name in ("body", "orelse")):
        if isinstance(block, list) and statement in block:
            for earlier in block[: block.index(statement)]:
                ends = isinstance(earlier, ast.If) and isinstance(earlier.body[-1], (ast.Return, ast.Raise))
                if ends and asks_for_seed(earlier.test):
                    return True
    return False
