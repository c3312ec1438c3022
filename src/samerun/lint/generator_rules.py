"""Rules about random generators that start from the system's entropy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import last_identifier, make_manual_seed_edits
from samerun.lint.call_arguments import argument_for, default_of, has_star, is_constant, keyword_value
from samerun.lint.random_draws import drawn_generator, is_for_display
from samerun.lint.rule import Hit, Rule, is_tried_out
from samerun.lint.seeding import (
    GLOBAL_SEEDS,
    NUMPY_GENERATORS,
    asks_for_seed,
    calls_unknown_seeding,
    has_main_guard_or_top_level_block,
    has_seeding_call_or_argument,
    is_fallback,
    is_single_seeding_outside_loops,
    seeds_repeatably,
)
from samerun.lint.source_index import SourceIndex
from samerun.lint.value_origins import find_origins, loads_of_assigned_variable


def _lacks_seed(call: ast.Call) -> bool:
    """Whether a constructor gets no seed, or None."""
    if has_star(call):
        return False
    seed = call.args[0] if call.args else keyword_value(call, "seed", "x", "entropy")
    return seed is None or is_constant(seed, None)


PICTURES = re.compile("sleep|scatter|plot|hist|Figure|imshow", re.IGNORECASE)


def _is_used_only_for_sleep_or_plots(index: SourceIndex, call: ast.Call) -> bool:
    """Whether all that is drawn from a generator is how long to sleep, or stands in a picture."""
    loads = loads_of_assigned_variable(index, call)
    return bool(loads) and all(
        any(isinstance(one, ast.Call) and PICTURES.search(last_identifier(one.func)) for one in index.ancestors(load))
        for load in loads
    )


STATE = {"get_state", "set_state", "bit_generator"}


def _is_never_drawn_from(index: SourceIndex, call: ast.Call) -> bool:
    """Whether nothing draws from a generator: only its state is asked for, or variables get it that nothing reads."""
    parent = index.parents.get(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr in STATE
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    reads: list[ast.expr] = []
    if isinstance(target, ast.Attribute):
        reads = [one for one in index.self_attributes(target) if isinstance(one.ctx, ast.Load)]
        if not reads:
            return False  # a class that inherits from this one may
    elif isinstance(target, ast.Name):
        reads = [*index.name_loads.get(target.id, ())]
        if not reads:
            return bool(index.functions or index.classes)  # a script may be looked at while it is written
    return isinstance(target, (ast.Name, ast.Attribute)) and all(
        _is_kept_unread(index, one) or (isinstance(on := index.parents.get(one), ast.Attribute) and on.attr in STATE)
        for one in reads
    )


def _is_kept_unread(index: SourceIndex, value: ast.expr) -> bool:
    """Whether a value, or the tuple in which it stands, is assigned to a variable that nothing reads."""
    whole = index.parents.get(value)
    statement = index.parents.get(whole) if isinstance(whole, ast.Tuple) else whole
    if not isinstance(statement, ast.Assign):
        return False
    target: ast.expr = statement.targets[0]
    if isinstance(whole, ast.Tuple):
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(whole.elts):
            return False
        target = target.elts[whole.elts.index(value)]
    return isinstance(target, ast.Name) and not any(
        index.binding_scope(one) is index.enclosing_scope_of(target) for one in index.name_loads.get(target.id, ())
    )


def _is_replaced_by_seeding(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a method that seeds, which users of the class call, gives the attribute another generator."""
    parent = index.parents.get(call)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    target = parent.target if isinstance(parent, ast.AnnAssign) else target
    if isinstance(target, ast.Name) and any(
        isinstance(above := index.parents.get(one), ast.Attribute)
        and above.attr in ("seed", "set_state", "bit_generator")
        for one in index.name_loads.get(target.id, ())
    ):
        return True
    if isinstance(target, ast.Attribute) and (
        target.attr in index.project.replaced
        or any(
            isinstance(one, ast.Attribute) and one.attr == target.attr and isinstance(one.ctx, ast.Store)
            and last_identifier(one.value) not in ("self", "cls")
            for one in index.nodes[ast.Attribute]
        )
    ):  # fmt: skip
        return True  # who has the object gives it another one
    owner = index.class_of(call)
    in_class = isinstance(target, ast.Attribute) or index.enclosing_scope_of(call) is owner
    if owner is None or not in_class or not isinstance(target, (ast.Name, ast.Attribute)):
        return False
    mentions = index.attributes[owner][last_identifier(target)]
    stores = [one for one in mentions if isinstance(one.ctx, ast.Store) and one is not target]
    functions = [index.enclosing_def(one) for one in stores]
    reads = [index.parents.get(one) for one in mentions if isinstance(one.ctx, ast.Load)]
    return any(one is not None and re.search("seed|random_state", one.name) for one in functions) or any(
        isinstance(one, ast.Attribute) and one.attr == "seed" for one in reads
    )


def _is_seeded_in_other_branch(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a condition chooses between this generator and one with a seed, for the same variable."""
    parent, condition = index.parents.get(call), index.parents.get(index.statement_of(call))
    if not isinstance(parent, ast.Assign) or not isinstance(condition, ast.If):
        return False
    return any(
        isinstance(other := index.parents.get(one), ast.Assign)
        and ast.dump(other.targets[0]) == ast.dump(parent.targets[0])
        and index.is_inside(one, condition)
        and not _lacks_seed(one)
        for one in index.calls_of(*NUMPY_GENERATORS)
    )


def find_unseeded_numpy_generators(index: SourceIndex) -> Iterator[Hit]:
    for call in index.calls_of(*NUMPY_GENERATORS):
        name = last_identifier(call.func)
        if (
            is_fallback(index, call)
            or _is_used_only_for_sleep_or_plots(index, call)
            or _is_replaced_by_seeding(index, call)
        ):
            continue
        if _is_never_drawn_from(index, call) or _is_seeded_in_other_branch(index, call):
            continue
        if _lacks_seed(call):
            edits = tuple(index.seed_editor.make_edits_seeding_unseeded_call(call))
            yield Hit(call, f"{name}() takes its seed from the operating system", edits)
        elif (omitted := _find_caller_omitting_seed(index, call)) is not None:
            where = f"line {omitted.lineno} leaves the seed out"
            yield Hit(call, f"{name}() gets None, and so a seed of the operating system: {where}")


def _find_caller_omitting_seed(index: SourceIndex, call: ast.Call) -> ast.Call | None:
    """A call in this text that leaves the parameter to its default, None, of which a generator is made."""
    seed = call.args[0] if call.args else keyword_value(call, "seed")
    function = index.enclosing_def(call)
    if not isinstance(seed, ast.Name) or function is None or not is_constant(default_of(function, seed.id), None):
        return None
    if len(index.bindings_of(seed)) != 1 or "seed" in function.name:  # which the caller of the class calls again
        return None
    for caller in index.calls_of_function(function):
        left_out = not has_star(caller) and argument_for(caller, function, seed.id) is None
        if left_out and not is_fallback(index, caller) and not is_tried_out(index, caller):
            return caller
    return None


def _is_drawn_from_and_not_seeded_later(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a generator is drawn from in this text, for more than names and waiting times, and not seeded later."""
    parent = index.parents.get(call)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return True
    name = last_identifier(target)
    attributes = (one for one in index.nodes[ast.Attribute] if isinstance(one, ast.Attribute))
    uses = {one.attr for one in attributes if last_identifier(one.value) == name}
    passed = any(not isinstance(index.parents.get(one), ast.Attribute) for one in index.name_loads.get(name, ()))
    if "seed" in uses or "setstate" in uses or _is_used_only_for_sleep_or_plots(index, call):
        return False
    return passed or bool(uses - {"getrandbits", "hex"})


def find_unseeded_python_generators(index: SourceIndex) -> Iterator[Hit]:
    for call in index.calls_of("random.Random"):
        if _lacks_seed(call) and not is_fallback(index, call) and _is_drawn_from_and_not_seeded_later(index, call):
            edits = tuple(index.seed_editor.make_edits_seeding_unseeded_call(call))
            yield Hit(call, "Random() takes its seed from the operating system", edits)


def find_unseeded_torch_generators(index: SourceIndex) -> Iterator[Hit]:
    """A generator that is used, and that nothing in the text seeds or restores."""
    for call in index.calls_of("torch.Generator"):
        parent = index.parents.get(call)
        if isinstance(parent, ast.keyword):
            yield Hit(call, "this generator is never seeded: torch.manual_seed does not reach it")
            continue
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        if not isinstance(target, (ast.Name, ast.Attribute)) or is_fallback(index, call):
            continue
        name = last_identifier(target)
        mentions = [
            *index.name_loads.get(name, ()),
            *(n for n in index.nodes[ast.Attribute] if last_identifier(n) == name),
        ]
        above = [index.parents.get(one) for one in mentions]
        seeded = any(
            isinstance(one, ast.Attribute) and one.attr in ("manual_seed", "set_state", "seed") for one in above
        )
        if not seeded and any(isinstance(one, ast.keyword) and one.arg == "generator" for one in above):
            yield Hit(call, f"nothing seeds {name}, and torch.manual_seed does not reach it")


def find_partly_seeded_programs(index: SourceIndex) -> Iterator[Hit]:
    """Two of the global generators are seeded by hand, and a third one is drawn from."""
    seeded = {
        kind for name, kind in GLOBAL_SEEDS.items()
        if any(
            is_single_seeding_outside_loops(index, call) and seeds_repeatably(index, call)
            for call in index.calls_by_name.get(name, ())
        )
    }  # fmt: skip
    if not seeded or calls_unknown_seeding(index):
        return
    if index.calls_by_name.get("torch.cuda.manual_seed") or index.calls_by_name.get("torch.cuda.manual_seed_all"):
        seeded.add("torch")
    if len(seeded) < (1 if has_main_guard_or_top_level_block(index) else 2):
        return
    told = seeded | {kind for name, kind in GLOBAL_SEEDS.items() if index.calls_by_name.get(name)}
    for call in index.calls:
        kind = drawn_generator(index.call_names.get(call, ""))
        if keyword_value(call, "generator") is not None or kind in told:
            continue
        if not kind or is_fallback(index, call) or is_for_display(index, call) or _is_tried_out(index, call):
            continue
        if not _only_names_something(index, call):
            told.add(kind)
            which = sorted({"python": "random", "numpy": "NumPy"}.get(one, one) for one in seeded)
            who = f"{' and '.join(which)} {'is' if len(which) == 1 else 'are'}"
            cause = {"python": "unseeded-python", "numpy": "unseeded-numpy-global", "torch": "unseeded-torch"}[kind]
            yield Hit(call, f"{who} seeded in this file, {NAMES[kind]} is not", cause=cause)


def _is_tried_out(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a tensor of a written size is drawn, as an input to try something out, or to show at once."""
    sizes = [*call.args, *(one.value for one in call.keywords if one.arg in ("size", "low", "high"))]
    numbers = (part for one in sizes for part in ast.walk(one) if isinstance(part, ast.expr))
    return index.call_names[call].startswith("torch.") and all(
        isinstance(one, (ast.Constant, ast.Tuple, ast.List, ast.UnaryOp)) for one in numbers
    )


NAMES = {"python": "Python's random", "numpy": "NumPy's generator", "torch": "torch's generator"}


def _only_names_something(index: SourceIndex, call: ast.Call) -> bool:
    """Whether what is drawn becomes a seed, a port, a name, or a time to wait; or a transform draws it.

    DataLoader workers, in which transforms run, are seeded from torch's generator.
    """
    function = index.enclosing_def(call)
    if function is not None and function.name == "__call__":
        return True
    statement = index.statement_of(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    words = re.compile(
        "seed|port|delay|sleep|jitter|name|path|uuid|suffix|prefix|folder|timeout|dummy|example", re.IGNORECASE
    )
    around = (one for one in index.ancestors(call) if isinstance(one, ast.Call))
    reads = loads_of_assigned_variable(index, call)
    if reads and all(isinstance(index.parents.get(one), ast.FormattedValue) for one in reads):
        return True
    return any(words.search(last_identifier(one)) for one in targets) or any(
        last_identifier(one.func) == "sleep" for one in around
    )


def find_entropy_reseeds(index: SourceIndex) -> Iterator[Hit]:
    if not index.project.is_seeded:
        return  # no seed was set before that could be lost
    alone = (index.is_notebook or has_main_guard_or_top_level_block(index)) and not has_seeding_call_or_argument(index)
    kinds = {"random.seed": "unseeded-python", "numpy.random.seed": "unseeded-numpy-global"}
    for call in index.calls_of(
        "random.seed", "numpy.random.seed", "torch.seed", "torch.cuda.seed", "torch.cuda.seed_all"
    ):
        name = index.call_names[call]
        function = index.enclosing_def(call)
        if function is not None and function.name == name.rpartition(".")[2]:
            continue  # which passes on what it is asked for
        if (
            has_star(call)
            or is_fallback(index, call)
            or _is_in_function_that_restores_state(index, call)
            or is_for_display(index, call)
            or (call.args and not is_constant(call.args[0], None))
            or call.keywords
            or _is_seeding_call_overridden_by_later_seed(index, call, name)
        ):
            continue
        if alone and name in kinds:
            continue  # it begins as it would have without; torch.seed() is written for a seed
        edits = index.seed_editor.make_edits_seeding_unseeded_call(call) if name in kinds else []
        yield Hit(call, f"{name}() takes a seed from the operating system", tuple(edits), kinds.get(name, ""))
    for call in index.calls_by_last_name.get("seed", ()):
        if isinstance(call.func, ast.Attribute) and not call.args and not call.keywords:
            made = [one for one in find_origins(index, call.func.value) if index.call_names[one] == "torch.Generator"]
            if made and not is_fallback(index, call) and not _is_seeded_if_seed_is_given(index, call.func.value):
                is_repeated = index.seed_editor.is_in_loop_or_per_sample_function(call)
                edits = [] if is_repeated else make_manual_seed_edits(call)
                yield Hit(
                    call, "Generator.seed() takes a seed from the operating system", tuple(edits),
                    "unseeded-torch-generator",
                )  # fmt: skip


def _is_seeded_if_seed_is_given(index: SourceIndex, generator: ast.expr) -> bool:
    """Whether the same function seeds a generator with a number where it is given one."""
    return any(
        isinstance(one.func, ast.Attribute)
        and ast.dump(one.func.value) == ast.dump(generator)
        and index.enclosing_def(one) is index.enclosing_def(generator)
        and any(asks_for_seed(test) for test in index.enclosing_tests(one))
        for one in index.calls_by_last_name.get("manual_seed", ())
    )


def _is_in_function_that_restores_state(index: SourceIndex, call: ast.Call) -> bool:
    """Whether the function around a call puts back a generator's state."""
    function = index.enclosing_def(call)
    restoring = (one for last in ("setstate", "set_state", "set_rng_state") for one in index.calls_by_last_name[last])
    return function is not None and any(index.is_inside(one, function) for one in restoring)


def _is_seeding_call_overridden_by_later_seed(index: SourceIndex, call: ast.Call, name: str) -> bool:
    """Whether a statement behind, in the same block, seeds the same generator, so that this one only begins it."""
    if name.startswith("torch") and not isinstance(index.parents.get(call), ast.Expr):
        return False
    statement = index.statement_of(call)
    block = getattr(index.parents[statement], "body", [])
    later = block[block.index(statement) + 1 :] if statement in block else []
    seeds = {f"{name.rpartition('.')[0]}.{last}" for last in ("seed", "manual_seed", "manual_seed_all")}
    return any(
        isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)
        and index.call_names[one.value] in seeds and one.value.args
        for one in later
    )  # fmt: skip


UNSEEDED_NUMPY_GENERATOR = Rule(
    "SR101", "unseeded-numpy-generator", "unseeded-numpy-generator",
    "Finds NumPy generators that are made without a seed, also through a parameter that is left at None.",
    "They take a seed from the operating system, and numpy.random.seed has no effect on them.",
    "import numpy as np\n\nrng = np.random.default_rng()\nnoise = rng.normal(size=3)\n",
    "import numpy as np\n\nrng = np.random.default_rng(0)\nnoise = rng.normal(size=3)\n",
    "pass a seed where the generator is made: numpy.random.default_rng(SEED)",
    "A generator that decides nothing that counts: pictures, names, noise that is switched off. Off by default.",
    find_unseeded_numpy_generators, default=False,
)  # fmt: skip
UNSEEDED_PYTHON_GENERATOR = Rule(
    "SR102", "unseeded-python-generator", "unseeded-python",
    "Finds `random.Random()` without a seed.",
    "It takes a seed from the operating system, and random.seed has no effect on it.",
    "import random\n\nshuffler = random.Random()\nrows = [1, 2, 3]\nshuffler.shuffle(rows)\n",
    "import random\n\nshuffler = random.Random(0)\nrows = [1, 2, 3]\nshuffler.shuffle(rows)\n",
    "pass a seed where the generator is made: random.Random(SEED)",
    "A generator that is seeded later, in another module.",
    find_unseeded_python_generators, default=False,
)  # fmt: skip
UNSEEDED_TORCH_GENERATOR = Rule(
    "SR103", "unseeded-torch-generator", "unseeded-torch-generator",
    "Finds `torch.Generator()` objects that are used and that nothing in the file seeds.",
    "torch.manual_seed does not reach them: they always start from the same number, whatever seed the program has.",
    "import torch\n\norder = torch.Generator()\nrows = torch.randperm(9, generator=order)\n",
    "import torch\n\norder = torch.Generator()\norder.manual_seed(0)\nrows = torch.randperm(9, generator=order)\n",
    "call manual_seed(SEED) on the generator",
    "Runs do not differ by it (the first state is a constant); only the seed has no effect. Off by default.",
    find_unseeded_torch_generators, default=False,
)  # fmt: skip
PARTLY_SEEDED_PROGRAM = Rule(
    "SR104", "partly-seeded-program", "unseeded-python",
    "Finds draws from one of the global generators (random, numpy.random, torch) where the file seeds others by hand.",
    "Each has a state of its own: seeding torch and NumPy leaves random.shuffle to the entropy of the system.",
    "import random\n\nimport numpy as np\nimport torch\n\nnp.random.seed(0)\ntorch.manual_seed(0)\nrows = [1, 2]\n"
    "random.shuffle(rows)\n",
    "import random\n\nimport numpy as np\nimport torch\n\nrandom.seed(0)\nnp.random.seed(0)\ntorch.manual_seed(0)\n"
    "rows = [1, 2]\nrandom.shuffle(rows)\n",
    "seed it too, before the first draw (samerun.seed_everything(SEED) seeds every source)",
    "A module that calls this one seeds the generator; what is drawn is only tried out, or shown. Off by default.",
    find_partly_seeded_programs, default=False,
)  # fmt: skip
ENTROPY_RESEED = Rule(
    "SR105", "entropy-reseed", "os-entropy",
    "Finds calls that seed a generator from the system: random.seed(), numpy.random.seed(), torch.seed().",
    "Whatever seed was set before is lost, and every run draws other numbers.",
    "import numpy as np\n\nnp.random.seed()\nnoise = np.random.rand(3)\n",
    "import numpy as np\n\nnp.random.seed(0)\nnoise = np.random.rand(3)\n",
    "give the call a seed; in a DataLoader worker torch.initial_seed() is one",
    "A program that wants another result in every run, or whose draws were not seeded before. Off by default.",
    find_entropy_reseeds, default=False,
)  # fmt: skip
