"""Rules about seeds: made of something that changes, set too late, the same where they should differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import is_constant, keyword_value
from samerun.lint.order_exemptions import TRAINING_OR_STORING
from samerun.lint.random_draws import drawn_generator, makes_layer
from samerun.lint.rule import Hit, Rule
from samerun.lint.seeding import (
    CLOCKS,
    ENTROPY,
    GLOBAL_SEEDS,
    NUMPY_GENERATORS,
    calls_unknown_seeding,
    has_main_guard_or_top_level_block,
    is_fallback,
    is_in_dead_code,
    is_single_seeding_outside_loops,
    reads_hash_seed,
)
from samerun.lint.source_index import FUNCTIONS, SourceIndex
from samerun.lint.value_origins import find_origins, loads_bound_in, loads_of_assigned_variable, value_kind

SEED_TAKERS = {"seed", "manual_seed", "manual_seed_all", "seed_everything", "set_seed", "set_random_seed", "seed_all",
               "fix_seed", "setup_seed", "initial_seed"}  # fmt: skip


def find_seed_arguments(index: SourceIndex) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that take a seed, with the seed; not those that stand where none was given."""
    made = {*NUMPY_GENERATORS, "random.Random"}
    for call in index.calls:
        last = last_identifier(call.func)
        seed = keyword_value(call, "seed", "random_state", "random_seed", "manual_seed")
        if seed is None and call.args and (last in SEED_TAKERS or index.call_names[call] in made):
            seed = call.args[0]
        if seed is not None and not isinstance(seed, ast.Constant) and not is_fallback(index, call):
            yield call, seed


def _find_seed_origins(index: SourceIndex, names: set[str], what: str) -> Iterator[Hit]:
    told: set[ast.Call] = set()
    for call, seed in find_seed_arguments(index):
        for origin in find_origins(index, seed):
            if (
                index.call_names[origin] not in names
                or _only_names_something(index, call)
                or _seeds_only_unused_draws(index, call)
                or is_fallback(index, origin)
                or _is_said_to_want_new_results(index, origin)
                or told & {origin, call}
            ):
                continue
            told |= {origin, call}
            direct = index.is_inside(origin, seed) and isinstance(seed, (ast.Call, ast.BinOp))
            by_keyword = any(keyword.value is seed for keyword in call.keywords)
            edits = index.seed_editor.make_edits_fixing_changing_parts(seed) if direct and not by_keyword else ()
            at = "" if direct else f", which becomes a seed at line {call.lineno}"
            yield Hit(origin, f"{what}{at}", tuple(edits))


NEW_RESULTS = re.compile(r"#.*\b(?:new|different) (?:results?|outcomes?)\b", re.IGNORECASE)


def _is_said_to_want_new_results(index: SourceIndex, node: ast.expr) -> bool:
    """Whether a comment at the end of the line says so: `# use if you want new results`, as a tutorial has it."""
    return bool(NEW_RESULTS.search(index.lines[(node.end_lineno or node.lineno) - 1]))


def _only_names_something(index: SourceIndex, call: ast.Call) -> bool:
    """Whether all that is drawn from a generator, for which a seed is found, is a port or a name."""
    kept = [index.statement_of(one) for one in loads_of_assigned_variable(index, call)]
    if index.call_names[call] == "random.seed":
        drawn = [one for one in index.calls if drawn_generator(index.call_names[one]) == "python"]
        system = [index.parents[one] for one in index.calls_of("random.SystemRandom")]
        kept = [index.statement_of(one) for one in (*drawn, *system)]
        if not any(index.enclosing_def(one) is index.enclosing_def(call) for one in kept):
            return False  # another module may draw
    return bool(kept) and all(
        isinstance(one, ast.Assign) and re.search("port|name|path|suffix", last_identifier(one.targets[0]))
        for one in kept
    )


def _seeds_only_unused_draws(index: SourceIndex, call: ast.Call) -> bool:
    """Whether nothing is computed from what a function draws behind its seed, and all other draws are seeded anew."""
    kind, function = GLOBAL_SEEDS.get(index.call_names[call]), index.enclosing_def(call)
    draws = [one for one in index.calls if kind and drawn_generator(index.call_names[one]) == kind]
    own = [one for one in draws if index.enclosing_def(one) is function and one.lineno > call.lineno]
    seeds = [one for name, what in GLOBAL_SEEDS.items() if what == kind for one in index.calls_by_name.get(name, ())]
    anew = {
        one for one in draws for seed in seeds
        if index.enclosing_def(one) is index.enclosing_def(seed) is not function and seed.lineno < one.lineno
    }  # fmt: skip
    return (
        function is not None
        and bool(own)
        and all(one in anew or _is_assigned_but_never_read(index, one) for one in draws)
    )


def _is_assigned_but_never_read(index: SourceIndex, node: ast.AST, depth: int = 5) -> bool:
    """Whether a value only goes into local names that nothing reads, or from which only such names are made."""
    statement = index.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if not depth or not targets or index.enclosing_def(statement) is None:
        return False
    return all(
        isinstance(target, ast.Name)
        and all(
            _is_assigned_but_never_read(index, load, depth - 1)
            for load in loads_bound_in(index, target.id, index.enclosing_scope_of(target))
        )
        for target in targets
    )


def find_clock_seeds(index: SourceIndex) -> Iterator[Hit]:
    if not _evaluates_loaded_weights(index):
        yield from _find_seed_origins(index, CLOCKS, "the clock differs in every run")


DRAWING_CALL = re.compile(r"(?:^|_)(?:sampl|generat|rand|nois|shuffl|dropout)")


def _evaluates_loaded_weights(index: SourceIndex) -> bool:
    """Whether a program draws nothing but weights that it then loads, and scores them."""
    calls = index.calls_by_last_name
    draws = any(drawn_generator(name) for name in index.call_names.values()) or any(map(DRAWING_CALL.search, calls))
    if draws or any(calls.get(name) for name in TRAINING_OR_STORING):
        return False
    return has_main_guard_or_top_level_block(index) and bool(calls.get("load_state_dict") and calls.get("eval"))


def find_entropy_seeds(index: SourceIndex) -> Iterator[Hit]:
    if not index.project.is_seeded:
        return  # no seed was set that could be lost: without this one, too, every run would draw other numbers
    names = ENTROPY - {"torch.seed"}  # which SR105 reports
    yield from _find_seed_origins(index, names, "this number differs in every run")


def find_hash_seeds(index: SourceIndex) -> Iterator[Hit]:
    if reads_hash_seed(index):
        return
    for hit in _find_seed_origins(index, {"hash"}, "hash() of text changes with PYTHONHASHSEED"):
        if isinstance(hit.node, ast.Call) and hit.node.args and value_kind(index, hit.node.args[0]) == "text":
            yield Hit(hit.node, hit.message, hit.edits)


def find_address_seeds(index: SourceIndex) -> Iterator[Hit]:
    yield from _find_seed_origins(index, {"id"}, "id() is an address, which differs in every run")


def find_drawn_seeds(index: SourceIndex) -> Iterator[Hit]:
    """A seed drawn from a global generator that the text itself seeds nowhere else."""
    if not has_main_guard_or_top_level_block(index):
        return
    seeded = set()
    for name, kind in GLOBAL_SEEDS.items():
        for call in index.calls_by_name.get(name, ()):
            if call.args and not any(drawn_generator(index.call_names[o]) for o in find_origins(index, call.args[0])):
                seeded.add(kind)
    if calls_unknown_seeding(index):
        return
    told = set()
    for call, seed in find_seed_arguments(index):
        if index.call_names[call] not in GLOBAL_SEEDS or not is_single_seeding_outside_loops(index, call):
            continue  # two transforms that draw alike, say
        for origin in find_origins(index, seed):
            kind = drawn_generator(index.call_names[origin])
            chosen = is_fallback(index, origin) or _is_said_to_want_new_results(index, origin)
            if kind and kind not in seeded and origin not in told and not chosen:
                told.add(origin)
                yield Hit(origin, f"the seed at line {call.lineno} is drawn from a generator that nothing has seeded")


def find_seed_or_random_fallbacks(index: SourceIndex) -> Iterator[Hit]:
    """`seed or something random`: the seed 0 counts as none."""
    for node in index.nodes[ast.BoolOp]:
        assert isinstance(node, ast.BoolOp)
        if not isinstance(node.op, ast.Or) or not _names_seed(node.values[0]):
            continue
        for origin in find_origins(index, node.values[-1]):
            name = index.call_names[origin]
            if name in CLOCKS | ENTROPY or (drawn_generator(name) and has_main_guard_or_top_level_block(index)):
                yield Hit(node, f"a seed of 0 counts as none here: {name}() replaces it")
                break


def _names_seed(node: ast.expr) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    name = key.value if isinstance(key, ast.Constant) else last_identifier(node)
    return isinstance(name, str) and "seed" in name.lower()


def find_late_hash_seeds(index: SourceIndex) -> Iterator[Hit]:
    """`os.environ["PYTHONHASHSEED"] = ...` with no new interpreter behind it, in a program that seeds."""
    if not index.project.is_seeded or any(
        name.startswith(("os.exec", "subprocess.", "os.spawn", "os.posix_spawn")) for name in index.calls_by_name
    ):
        return
    for node in (*index.nodes[ast.Assign], *index.calls):
        if isinstance(node, ast.Call):
            name = index.call_names[node]
            key = node.args[0] if name in ("os.putenv", "os.environ.setdefault") and node.args else None
        else:
            assert isinstance(node, ast.Assign)
            target = node.targets[0]
            environment = isinstance(target, ast.Subscript) and index.qualified_name(target.value) == "os.environ"
            key = target.slice if environment else None  # type: ignore[attr-defined]
        if is_constant(key, "PYTHONHASHSEED"):
            assert isinstance(node, (ast.Assign, ast.Call))
            if is_in_dead_code(index, node):
                continue
            yield Hit(node, "Python reads PYTHONHASHSEED when it starts: in this process it has no effect any more")


def find_constant_worker_seeds(index: SourceIndex) -> Iterator[Hit]:
    """A `worker_init_fn` that seeds a generator, from which the text draws, with the same number in every worker."""
    drawn = {drawn_generator(name) for name in index.calls_by_name}
    for call in index.calls:
        function, workers = keyword_value(call, "worker_init_fn"), keyword_value(call, "num_workers")
        if workers is None or is_constant(workers, 0):
            continue
        if isinstance(function, ast.Name):
            bodies: list[ast.AST] = [one for one in index.bindings_of(function) if isinstance(one, FUNCTIONS)]
        else:
            bodies = [function] if isinstance(function, ast.Lambda) else []
        for body in bodies:
            for seeding in (node for node in ast.walk(body) if isinstance(node, ast.Call)):
                name = index.call_names[seeding]
                kind = GLOBAL_SEEDS.get(name)
                if kind in drawn and seeding.args and _is_same_in_all_workers(index, seeding.args[0], body):
                    yield Hit(seeding, "every worker gets the same seed, and draws the same numbers")


def _is_same_in_all_workers(index: SourceIndex, seed: ast.expr, function: ast.AST) -> bool:
    """Whether a seed is a constant, or a name from outside the function."""
    names = [node for node in ast.walk(seed) if isinstance(node, ast.Name)]
    if any(isinstance(node, (ast.Call, ast.Attribute)) for node in ast.walk(seed)):
        return False
    return all(index.binding_scope(name) is not function for name in names)


def find_models_before_seed(index: SourceIndex) -> Iterator[Hit]:
    """A model built in a block whose later statements seed torch for the first time."""
    classes = {
        one.name for one in index.classes
        if any(base.rpartition(".")[2].endswith("Module") for base in index.transitive_base_names(one))
        and not one.name.endswith(("Loss", "Criterion", "Metric"))
    }  # fmt: skip
    seeds = index.calls_of("torch.manual_seed", "pytorch_lightning.seed_everything", "lightning.seed_everything")
    if len(seeds) != 1 or not isinstance(index.parents.get(seeds[0]), ast.Expr):
        return
    statement = index.statement_of(seeds[0])
    block = getattr(index.parents[statement], "body", [])
    if statement not in block:
        return
    for earlier in block[: block.index(statement)]:
        value = earlier.value if isinstance(earlier, ast.Assign) else None
        if isinstance(value, ast.Call):
            inner = [value, *(node for node in ast.walk(value) if isinstance(node, ast.Call))]
            built = any(last_identifier(one.func) in classes or makes_layer(index, one) for one in inner)
            if (
                built
                and any(
                    index.call_names[one].startswith("torch.") or last_identifier(one.func) in classes for one in inner
                )
                and _is_used_as_drawn(index, earlier, seeds[0])
            ):
                yield Hit(value, f"this draws its weights before line {seeds[0].lineno} seeds torch")
                return


def _is_used_as_drawn(index: SourceIndex, assign: ast.stmt, seeding: ast.Call) -> bool:
    """Whether what is assigned is used behind the seed, and nothing loads other weights into it."""
    targets = assign.targets if isinstance(assign, ast.Assign) else []
    names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    loads = [one for name in names for one in index.name_loads.get(name, ())]
    bound = [one for one in index.nodes[ast.Name] if isinstance(one, ast.Name) and one.id in names]
    if any(isinstance(one.ctx, ast.Store) and assign.lineno < one.lineno <= seeding.lineno for one in bound):
        return False
    for one in loads:
        call = next((above for above in index.ancestors(one) if isinstance(above, (ast.Call, ast.stmt))), None)
        name = last_identifier(call.func) if isinstance(call, ast.Call) else ""
        if name.startswith("load") and "checkpoint" not in name:
            return False
    return any(one.lineno > seeding.lineno for one in loads)


CLOCK_SEED = Rule(
    "SR111", "clock-seed", "time",
    "Finds seeds that are made of the time.",
    "Another seed in every run: what was drawn cannot be drawn again.",
    "import time\n\nimport torch\n\nseed = int(time.time())\ntorch.manual_seed(seed)\n",
    "import torch\n\nseed = 0\ntorch.manual_seed(seed)\n",
    "use a fixed number, or one that an option of the program gives",
    "A default that is written down and can be given again.",
    find_clock_seeds,
)  # fmt: skip
ENTROPY_SEED = Rule(
    "SR112", "entropy-seed", "os-entropy",
    "Finds seeds made of process numbers, os.urandom, uuid4 or secrets.",
    "Another seed in every run: what was drawn cannot be drawn again.",
    "import os\n\nimport numpy as np\n\nnp.random.seed(os.getpid())\n",
    "import numpy as np\n\nnp.random.seed(0)\n",
    "derive the seed from the run's seed, for a worker or a rank by its number",
    "A default that is written down and can be given again.",
    find_entropy_seeds,
)  # fmt: skip
HASH_SEED = Rule(
    "SR113", "hash-seed", "hash-order",
    "Finds seeds made with hash().",
    "Python gives the hash of text another key in every process.",
    "import torch\n\ntorch.manual_seed(hash(\"my experiment\") % 2**32)\n",
    "import zlib\n\nimport torch\n\ntorch.manual_seed(zlib.crc32(b\"my experiment\"))\n",
    "use zlib.crc32 or hashlib, which give fixed numbers",
    "hash() of numbers alone, where the text does not say that they are.",
    find_hash_seeds,
)  # fmt: skip
ADDRESS_SEED = Rule(
    "SR114", "address-seed", "object-id",
    "Finds seeds made with id().",
    "id() is an address, which the system chooses anew in every run.",
    "import torch\n\nnames = []\ntorch.manual_seed(id(names))\n",
    "import torch\n\nnames = []\ntorch.manual_seed(0)\n",
    "give seeds a fixed number",
    "None is known.",
    find_address_seeds,
)  # fmt: skip
DRAWN_SEED = Rule(
    "SR115", "drawn-seed", "unseeded-python",
    "Finds seeds of global generators that are drawn from a generator which the file does not seed.",
    "The draw starts from the system's entropy, so the seed differs in every run.",
    "import random\n\nimport torch\n\nif __name__ == \"__main__\":\n    seed = random.randint(1, 10000)\n"
    "    print(seed)\n    torch.manual_seed(seed)\n",
    "import torch\n\nseed = 1234\nprint(seed)\ntorch.manual_seed(seed)\n",
    "use a fixed number, or one that an option of the program gives",
    "The seed is printed, and can be given again by hand; another module seeded the generator.",
    find_drawn_seeds,
)  # fmt: skip
FALSY_SEED = Rule(
    "SR116", "falsy-seed", "os-entropy",
    "Finds `seed or something_random()`.",
    "The seed 0, which many choose, counts as no seed.",
    "import torch\n\n\ndef start(seed=None):\n    torch.manual_seed(seed or torch.seed())\n",
    "import torch\n\n\ndef start(seed=None):\n    torch.manual_seed(torch.seed() if seed is None else seed)\n",
    "compare with None: `if seed is None`",
    "A program in which 0 is said to mean any seed.",
    find_seed_or_random_fallbacks,
)  # fmt: skip
LATE_HASH_SEED = Rule(
    "SR117", "late-hash-seed", "hash-order",
    "Finds PYTHONHASHSEED set in os.environ by the program itself.",
    "Python reads it before the first line of the program runs; the sets of this process keep their order of chance.",
    "import os\n\nos.environ[\"PYTHONHASHSEED\"] = \"0\"\n",
    "import os\n\nassert os.environ.get(\"PYTHONHASHSEED\") == \"0\", \"start with PYTHONHASHSEED=0\"\n",
    "set it before the interpreter starts (samerun run does), and sort sets",
    "The variable is meant for processes that the program starts.",
    find_late_hash_seeds,
)  # fmt: skip
CONSTANT_WORKER_SEED = Rule(
    "SR118", "constant-worker-seed", "worker-seed",
    "Finds a worker_init_fn that gives every DataLoader worker the same seed.",
    "All workers draw the same numbers, again in every epoch, so that the data depends on how many there are.",
    "import numpy as np\nfrom torch.utils.data import DataLoader\n\n\ndef seed_worker(number):\n"
    "    np.random.seed(1234)\n\n\nrows = np.random.rand(9)\n"
    "loader = DataLoader(rows, num_workers=2, worker_init_fn=seed_worker)\n",
    "import numpy as np\nfrom torch.utils.data import DataLoader\n\n\ndef seed_worker(number):\n"
    "    np.random.seed(1234 + number)\n\n\nrows = np.random.rand(9)\n"
    "loader = DataLoader(rows, num_workers=2, worker_init_fn=seed_worker)\n",
    "add the worker's number, or use torch.initial_seed()",
    "Items that draw nothing from the generator.",
    find_constant_worker_seeds,
)  # fmt: skip
MODEL_BEFORE_SEED = Rule(
    "SR119", "model-before-seed", "unseeded-torch",
    "Finds models built before the statement of the same block that seeds torch.",
    "Their weights were drawn from the system's entropy before the seed was set.",
    "import torch\nfrom torch import nn\n\nmodel = nn.Linear(4, 1)\ntorch.manual_seed(0)\ny = model(torch.ones(4))\n",
    "import torch\nfrom torch import nn\n\ntorch.manual_seed(0)\nmodel = nn.Linear(4, 1)\ny = model(torch.ones(4))\n",
    "seed before the first draw",
    "Weights that are loaded afterwards; a seed that was set by a module that calls this one.",
    find_models_before_seed,
)  # fmt: skip
