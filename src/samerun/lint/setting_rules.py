"""Rules about settings, fresh memory, and draws and states beside the training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import Edit, last_identifier, make_zeroed_constructor_edits, node_span
from samerun.lint.call_arguments import is_constant, keyword_value
from samerun.lint.order_exemptions import trains
from samerun.lint.random_draws import draws_from_global_generator
from samerun.lint.rule import Hit, Rule
from samerun.lint.source_index import Function, SourceIndex

DETERMINISTIC_MODE = "torch.use_deterministic_algorithms"


def find_literal_warn_only(index: SourceIndex) -> Iterator[Hit]:
    for call in index.calls_of(DETERMINISTIC_MODE, "torch.set_deterministic_debug_mode"):
        value = keyword_value(call, "warn_only")
        on = call.args and not is_constant(call.args[0], False)
        chosen = any(
            re.search("warn|device|rocm|cuda|mps", ast.unparse(test).lower()) for test in index.enclosing_tests(call)
        )
        if on and value is not None and is_constant(value, True) and not chosen:
            edit = Edit(*node_span(value), "False")
            yield Hit(
                call, "operators without a deterministic implementation run all the same, with a warning", (edit,)
            )


def find_benchmark_beside_deterministic(index: SourceIndex) -> Iterator[Hit]:
    """`cudnn.benchmark = True` in a scope that also asks for determinism."""
    asked: set[tuple[ast.AST, bool]] = set()
    benchmarks = []
    for node in index.nodes[ast.Assign]:
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or last_identifier(target.value) != "cudnn":
            continue
        if target.attr == "deterministic" and is_constant(node.value, True):
            asked.add(_block_of(index, node))
        elif target.attr == "benchmark" and is_constant(node.value, True):
            benchmarks.append(node)
    left: set[tuple[ast.AST, bool]] = set()
    for call in index.calls_of(DETERMINISTIC_MODE):
        block = _block_of(index, index.statement_of(call))
        (asked if call.args and is_constant(call.args[0], True) else left).add(block)
    for node in benchmarks:
        if _block_of(index, node) in asked - left:
            edit = Edit(*node_span(node.value), "False")
            yield Hit(
                node, "cuDNN chooses algorithms by timing them, beside a setting that asks for determinism", (edit,)
            )


def _block_of(index: SourceIndex, statement: ast.AST) -> tuple[ast.AST, bool]:
    """What tells the blocks apart in which statements stand: the statement around them, and whether it is its else."""
    around = index.parents[statement]
    return around, statement in getattr(around, "orelse", ())


CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
USES_CUDA = {"cuda", "matmul", "mm", "backward"}


def find_late_or_ineffective_cublas_configurations(index: SourceIndex) -> Iterator[Hit]:
    """The variable is set in a block behind a statement that has used the device."""
    for node in index.nodes[ast.Assign]:
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        if not isinstance(target, ast.Subscript) or not is_constant(target.slice, CUBLAS):
            continue
        if index.qualified_name(target.value) != "os.environ":
            continue
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if value and isinstance(value, str) and value not in (":4096:8", ":16:8", ":4096:2"):
            yield Hit(node, f"{value!r} does not make cuBLAS deterministic; :4096:8 and :16:8 do")
            continue
        if any(is_constant(one, CUBLAS) and one.lineno < node.lineno for one in index.nodes[ast.Constant]):  # type: ignore
            continue  # set before
        block = getattr(index.parents[node], "body", [])
        for earlier in block[: block.index(node)] if node in block else []:
            if isinstance(earlier, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            used = [
                one
                for one in ast.walk(earlier)
                if isinstance(one, ast.Call) and _may_initialize_cuda_or_cublas(index, one)
            ]
            if used:
                yield Hit(node, f"line {used[0].lineno} has used the device: cuBLAS read {CUBLAS} then")
                break


def _may_initialize_cuda_or_cublas(index: SourceIndex, call: ast.Call) -> bool:
    last = last_identifier(call.func)
    on_device = last == "to" and any(
        (isinstance(one, ast.Constant) and str(one.value).startswith("cuda")) or last_identifier(one) == "device"
        for one in call.args
    )  # fmt: skip
    return on_device or (last in USES_CUDA and isinstance(call.func, ast.Attribute))


EMPTY_MAKERS = ("torch.empty", "torch.empty_like")


def find_reads_of_fresh_memory(index: SourceIndex) -> Iterator[Hit]:
    """`torch.empty` of which only parts are written before it is read."""
    for call in [*index.calls_of(*EMPTY_MAKERS), *index.calls_by_last_name.get("new_empty", ())]:
        if (
            isinstance(statement := index.statement_of(call), ast.Assign)
            and last_identifier(statement.targets[0]) == "_"
        ):
            continue
        if any(is_constant(one, 0) for one in call.args) or is_constant(keyword_value(call, "device"), "meta"):
            continue
        edits = tuple(make_zeroed_constructor_edits(call))
        if (reader := _reads_at_once(index, call)) is not None:
            yield Hit(call, f"{reader} reads memory that nothing has written", edits)
            continue
        parent = index.parents.get(call)
        target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
        if isinstance(target, ast.Name) and _is_partially_filled_then_read(index, target):
            yield Hit(call, f"only parts of {target.id} are written before it is read", edits)


READING_METHODS = {"sum", "mean", "abs", "exp", "sqrt", "sigmoid", "softmax", "norm"}


CONVERSIONS = {"float", "double", "half", "to", "type", "clone", "cuda", "cpu"}


def _reads_at_once(index: SourceIndex, call: ast.expr) -> str | None:
    parent = index.parents.get(call)
    above = index.parents.get(parent) if parent is not None else None
    if isinstance(parent, ast.Attribute) and parent.attr in CONVERSIONS and isinstance(above, ast.Call):
        return _reads_at_once(index, above)  # it may be written afterwards
    if isinstance(parent, ast.BinOp):
        return None if _is_stored_into(index, parent) else "arithmetic"
    if isinstance(parent, ast.Attribute) and parent.attr in READING_METHODS and isinstance(above, ast.Call):
        outer = index.parents.get(above)
        filled = isinstance(outer, ast.Attribute) and outer.attr.endswith("_")
        return None if filled or _is_stored_into(index, above) else f"{parent.attr}()"
    return None


def _is_stored_into(index: SourceIndex, value: ast.AST) -> bool:
    """Whether what a call gives is kept under a name, or in self, and elements of it are written."""
    statement = index.statement_of(value)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return isinstance(target, (ast.Name, ast.Attribute)) and any(
        isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store)
        and last_identifier(one.value) == last_identifier(target)
        for one in index.nodes[ast.Subscript]
    )  # fmt: skip


def _is_partially_filled_then_read(index: SourceIndex, target: ast.Name) -> bool:
    """Whether slices that depend on data are all that is stored in a name, which is then returned or computed with."""
    scope = index.enclosing_scope_of(target)
    if len(index.bindings[scope].get(target.id, ())) != 1:
        return False
    partial = read = False
    for load in index.name_loads.get(target.id, ()):
        if index.binding_scope(load) is not scope:
            continue
        parent = index.parents.get(load)
        if isinstance(parent, ast.Subscript) and parent.value is load:
            if not isinstance(parent.ctx, ast.Store) or not _is_slice_ending_at_len_or_size_call(parent.slice):
                return False
            partial = True
        elif isinstance(parent, ast.Attribute):
            if parent.attr.endswith("_") or parent.attr not in READING_METHODS | {"shape", "size", "dim", "to"}:
                return False
            read = read or parent.attr in READING_METHODS
        elif isinstance(parent, (ast.Return, ast.BinOp)):
            read = True
        elif isinstance(parent, ast.Call) and last_identifier(parent.func) not in ("len", "print"):
            return False  # it may be written there
    return partial and read


SIZES = ("len", "size")


def _is_slice_ending_at_len_or_size_call(where: ast.expr) -> bool:
    """Whether a slice ends where its data does: `[i, :len(row)]`."""
    parts = where.elts if isinstance(where, ast.Tuple) else [where]
    return any(
        isinstance(part, ast.Slice) and isinstance(part.upper, ast.Call) and last_identifier(part.upper.func) in SIZES
        for part in parts
    )  # fmt: skip


# --- draws beside the training
def find_recomputed_dropout_without_rng(index: SourceIndex) -> Iterator[Hit]:
    for call in index.calls_of("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"):
        keep = keyword_value(call, "preserve_rng_state")
        dropout = any("dropout" in last.lower() for last in index.calls_by_last_name)
        if keep is not None and is_constant(keep, False) and dropout:
            edit = Edit(*node_span(keep), "True")
            yield Hit(
                call, "dropout draws again when the block is recomputed: the gradient is that of another mask", (edit,)
            )


CLOCKS = {"time.time", "time.monotonic", "time.perf_counter", "datetime.datetime.now"}
FORKS = re.compile("fork_rng|isolate|seeded|preserve")


def find_draws_under_clock(index: SourceIndex) -> Iterator[Hit]:
    """A draw, here or in a function called here, in a branch that the clock decides; in a text that trains."""
    if not trains(index):
        return
    for node in index.nodes[ast.If]:
        assert isinstance(node, ast.If)
        if not _calls_clock_directly_or_in_callee(index, node.test):
            continue
        calls = [one for statement in node.body for one in ast.walk(statement) if isinstance(one, ast.Call)]
        if any(last_identifier(one.func) == "backward" for one in calls):
            continue  # a budget of time, which decides how long the training is
        for call in calls:
            drawing = _find_draw_in_call_or_callee(index, call)
            if drawing is not None and not _is_forked(index, call):
                yield Hit(drawing, f"the clock decides at line {node.lineno} whether this draws")
                break


def _calls_clock_directly_or_in_callee(index: SourceIndex, test: ast.expr) -> bool:
    for call in (one for one in ast.walk(test) if isinstance(one, ast.Call)):
        if index.call_names[call] in CLOCKS:
            return True
        called = index.called_function(call) or _method_by_name(index, call)
        if called is not None and any(
            isinstance(one, ast.Call) and index.call_names[one] in CLOCKS for one in ast.walk(called)
        ):
            return True
    return False


def _method_by_name(index: SourceIndex, call: ast.Call) -> Function | None:
    """The only method of this text that has the name of what is called."""
    if not isinstance(call.func, ast.Attribute):
        return None
    same = [one for one in index.functions if one.name == last_identifier(call.func)]
    return same[0] if len(same) == 1 and index.class_of(same[0]) is not None else None


def _find_draw_in_call_or_callee(index: SourceIndex, call: ast.Call) -> ast.Call | None:
    if draws_from_global_generator(index, call):
        return call
    called = index.called_function(call)
    for one in ast.walk(called) if called is not None else ():
        if isinstance(one, ast.Call) and draws_from_global_generator(index, one) and not _is_forked(index, one):
            return one
    return None


def _is_forked(index: SourceIndex, node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.With) and FORKS.search(" ".join(ast.unparse(item) for item in one.items))
        for one in index.ancestors(node)
    )


def find_conditional_reseeds_in_training_loop(index: SourceIndex) -> Iterator[Hit]:
    """A constant seed set in a function that a branch of a training loop calls now and then."""
    for seeding in index.calls_of("torch.manual_seed", "numpy.random.seed", "random.seed"):
        function = index.enclosing_def(seeding)
        if (
            function is None
            or not seeding.args
            or not isinstance(seeding.args[0], ast.Constant)
            or _is_forked(index, seeding)
        ):
            continue
        for call in index.calls_of_function(function):
            loops = [one for one in index.ancestors(call) if isinstance(one, (ast.For, ast.While))]
            trains = loops and any(
                isinstance(one, ast.Call) and last_identifier(one.func) == "backward" for one in ast.walk(loops[0])
            )
            branch = any(isinstance(one, ast.If) for one in index.ancestors(call))
            if trains and branch:
                yield Hit(seeding, f"line {call.lineno} calls this now and then: the training goes on from this seed")
                break


WARN_ONLY = Rule(
    "SR131", "warn-only", "nondeterministic-operator",
    "Finds use_deterministic_algorithms(True, warn_only=True).",
    "Operators that have no deterministic implementation run all the same; the warning is easily lost.",
    "import torch\n\ntorch.use_deterministic_algorithms(True, warn_only=True)\n",
    "import torch\n\ntorch.use_deterministic_algorithms(True, warn_only=False)\n",
    "leave warn_only out; samerun.deterministic() brings kernels for what torch then refuses",
    "A setting that an option of the program chooses.",
    find_literal_warn_only,
)  # fmt: skip
BENCHMARK_BESIDE_DETERMINISTIC = Rule(
    "SR132", "benchmark-beside-deterministic", "nondeterministic-operator",
    "Finds cudnn.benchmark = True in the block that also asks for deterministic algorithms.",
    "cuDNN then times its algorithms and takes the fastest, which may be another one in the next run.",
    "import torch\n\ntorch.backends.cudnn.deterministic = True\ntorch.backends.cudnn.benchmark = True\n",
    "import torch\n\ntorch.backends.cudnn.deterministic = True\ntorch.backends.cudnn.benchmark = False\n",
    "set torch.backends.cudnn.benchmark = False",
    "Deterministic algorithms that all give the same bits.",
    find_benchmark_beside_deterministic,
)  # fmt: skip
LATE_CUBLAS_CONFIGURATION = Rule(
    "SR133", "late-cublas-configuration", "nondeterministic-operator",
    "Finds CUBLAS_WORKSPACE_CONFIG set behind the first use of the device, or to a value that does not help.",
    "cuBLAS reads it when its handle is made, at the first product of matrices.",
    "import os\n\nimport torch\n\nmodel = torch.nn.Linear(2, 2).cuda()\n"
    "os.environ[\"CUBLAS_WORKSPACE_CONFIG\"] = \":4096:8\"\n",
    "import os\n\nimport torch\n\nos.environ[\"CUBLAS_WORKSPACE_CONFIG\"] = \":4096:8\"\n"
    "model = torch.nn.Linear(2, 2).cuda()\n",
    "set it at the top of the program, or before the interpreter starts (samerun run does)",
    "The device was only asked for, and cuBLAS not yet used.",
    find_late_or_ineffective_cublas_configurations,
)  # fmt: skip
FRESH_MEMORY = Rule(
    "SR134", "fresh-memory", "uninitialised-memory",
    "Finds torch.empty that is read before all of it was written.",
    "It returns what the memory held before.",
    "import torch\n\n\ndef pad(rows, longest):\n    batch = torch.empty(len(rows), longest)\n"
    "    for i, row in enumerate(rows):\n"
    "        batch[i, : len(row)] = row\n    return batch\n",
    "import torch\n\n\ndef pad(rows, longest):\n    batch = torch.zeros(len(rows), longest)\n"
    "    for i, row in enumerate(rows):\n"
    "        batch[i, : len(row)] = row\n    return batch\n",
    "use torch.zeros, or write every element",
    "The rest is masked wherever it is read.",
    find_reads_of_fresh_memory,
)  # fmt: skip
RECOMPUTATION_WITHOUT_RNG = Rule(
    "SR153", "recomputation-without-rng", "extra-draw",
    "Finds activation checkpointing with preserve_rng_state=False in a file with dropout.",
    "The block is computed again for the backward pass, and dropout draws another mask.",
    "import torch\nfrom torch import nn\nfrom torch.utils.checkpoint import checkpoint\n\n"
    "block = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))\n"
    "y = checkpoint(block, torch.ones(2), use_reentrant=False, preserve_rng_state=False)\n",
    "import torch\nfrom torch import nn\nfrom torch.utils.checkpoint import checkpoint\n\n"
    "block = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))\n"
    "y = checkpoint(block, torch.ones(2), use_reentrant=False, preserve_rng_state=True)\n",
    "leave preserve_rng_state at True",
    "A block without dropout in a file that has some elsewhere.",
    find_recomputed_dropout_without_rng,
)  # fmt: skip
DRAW_UNDER_CLOCK = Rule(
    "SR154", "draw-under-clock", "extra-draw",
    "Finds draws from global generators in a branch that the clock decides, in a file that trains.",
    "Whether it draws changes all that is drawn behind it.",
    "import time\n\nimport torch\n\nlast = time.time()\nfor step in range(9):\n    if time.time() - last > 1:\n"
    "        noise = torch.randn(2)\n    model(noise).backward()\n",
    "import time\n\nimport torch\n\nlast = time.time()\nfor step in range(9):\n    if time.time() - last > 1:\n"
    "        with torch.random.fork_rng():\n            noise = torch.randn(2)\n    model(noise).backward()\n",
    "draw from a generator of its own, or inside torch.random.fork_rng()",
    "Draws that nothing else follows.",
    find_draws_under_clock,
)  # fmt: skip
RESEED_BESIDE_TRAINING = Rule(
    "SR155", "reseed-beside-training", "extra-draw",
    "Finds functions that set a constant seed and that a training loop calls now and then.",
    "The training goes on from that seed: its result depends on how often it is called, and numbers repeat.",
    "import torch\n\n\ndef show(model):\n    torch.manual_seed(1)\n    return model(torch.randn(2))\n\n\n"
    "def train(model):\n    for step in range(9):\n        model(torch.randn(2)).backward()\n"
    "        if step % 3 == 0:\n            show(model)\n",
    "import torch\n\n\ndef show(model):\n    own = torch.Generator().manual_seed(1)\n"
    "    return model(torch.randn(2, generator=own))\n\n\n"
    "def train(model):\n    for step in range(9):\n        model(torch.randn(2)).backward()\n"
    "        if step % 3 == 0:\n            show(model)\n",
    "draw from a generator of its own, or inside torch.random.fork_rng()",
    "None is known.",
    find_conditional_reseeds_in_training_loop,
)  # fmt: skip
