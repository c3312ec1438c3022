"""Rules about orders that depend on hashes, on addresses or on who is first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import (
    Edit,
    last_identifier,
    make_wrap_edits,
    node_span,
)
from samerun.lint.call_arguments import is_constant, keyword_value
from samerun.lint.element_numbers import assigns_class_or_token_ids_by_name
from samerun.lint.order_exemptions import is_for_evaluation_split, is_vocabulary, order_use_can_change_result
from samerun.lint.rule import Hit, Rule
from samerun.lint.seeding import has_main_guard_or_top_level_block, has_seeding_call_or_argument, reads_hash_seed
from samerun.lint.source_index import ALONE, FUNCTIONS, SourceIndex
from samerun.lint.value_flow import NUMBERS, OrderFlow, OrderUse
from samerun.lint.value_origins import OBJECT_LISTS, element_kind, loads_of_assigned_variable, value_kind


def list_set_expressions(index: SourceIndex) -> Iterator[ast.expr]:
    """The expressions that make a set."""
    for kind in (ast.Set, ast.SetComp):
        yield from index.nodes[kind]  # type: ignore[misc]
    yield from index.calls_of("set", "frozenset")


def find_sets_in_order(index: SourceIndex) -> Iterator[Hit]:
    """Sets of text, iterated where the order counts."""
    told: set[ast.AST] = set()
    for made in _find_string_sets(index):
        use = OrderFlow(index, files=False).find_use(made, "set")
        if use is None or use.taken in told or not order_use_can_change_result(index, use.node):
            continue
        if use.samples and is_for_evaluation_split(index, use.taken):
            continue
        unknown = index.project is ALONE or not has_main_guard_or_top_level_block(index)  # others may import it
        seeded = has_seeding_call_or_argument(index) or (index.project.is_seeded and unknown)
        if use.effect == NUMBERS and (not (seeded or _stores(index)) or _become_characters(index, use.node)):
            continue  # the numbers end with the process, and no other one draws the same
        if isinstance(use.taken, ast.expr) and (has_seeding_call_or_argument(index) or not use.drawn):
            told.add(use.taken)
            yield _make_set_hit(use)


def _become_characters(index: SourceIndex, numbers: ast.AST) -> bool:
    """Whether each word becomes a character by its number, so that texts of them are compared: any number would do."""
    above = [index.parents.get(one) for one in loads_of_assigned_variable(index, numbers)]
    calls = [index.parents.get(one) if isinstance(one, ast.Subscript) else None for one in above]
    return bool(calls) and all(isinstance(one, ast.Call) and last_identifier(one.func) == "chr" for one in calls)


def find_string_sets_written_to_vocabularies(index: SourceIndex) -> Iterator[Hit]:
    """Sets of text whose order is that of a file of words or labels, and has no other effect."""
    told: set[ast.AST] = set()
    for made in _find_string_sets(index):
        use = OrderFlow(index).find_use(made, "set")
        if use is None or use.taken in told or not is_vocabulary(index, use.node):
            continue
        if isinstance(use.taken, ast.expr) and OrderFlow(index, files=False).find_use(made, "set") is None:
            told.add(use.taken)
            yield _make_set_hit(use)


STORING = re.compile(r"(?:^|_)(?:save|savez|savetxt|dump|dumps|write|to_csv|export|load|restore)(?:_|$)")


def _stores(index: SourceIndex) -> bool:
    """Whether the text stores something, or takes up what is stored: numbers in it outlive the process."""
    return any(STORING.search(last) for last in index.calls_by_last_name)


def _find_string_sets(index: SourceIndex) -> Iterator[ast.expr]:
    for made in list_set_expressions(index) if not reads_hash_seed(index) else ():
        if _element_kind_of_set(index, made) == "text" and not _is_tiny(made):
            yield made


def _make_set_hit(use: OrderUse) -> Hit:
    taken = use.taken
    assert isinstance(taken, ast.expr)
    line = getattr(use.node, "lineno", 0)
    at = "" if line == taken.lineno else f" at line {line}"
    return Hit(taken, f"the order of this set of text {use.effect}{at}", _make_sorted_edits(taken))


def _is_tiny(made: ast.expr) -> bool:
    """A set with at most one element has one order."""
    if isinstance(made, ast.Set):
        return len(made.elts) < 2
    argument = made.args[0] if isinstance(made, ast.Call) and made.args else None
    return isinstance(argument, (ast.List, ast.Tuple)) and len(argument.elts) < 2


def _element_kind_of_set(index: SourceIndex, made: ast.expr) -> str:
    if isinstance(made, ast.Call) and not made.args:
        parent = index.parents.get(made)
        target = parent.targets[0] if isinstance(parent, ast.Assign) else None
        target = parent.target if isinstance(parent, ast.AnnAssign) else target
        return element_kind(index, target) if isinstance(target, (ast.Name, ast.Attribute)) else "unknown"
    return element_kind(index, made.args[0] if isinstance(made, ast.Call) else made)


def _make_sorted_edits(node: ast.expr) -> tuple[Edit, ...]:
    return tuple(make_wrap_edits(node, "sorted(", ")"))


def find_sets_of_modules(index: SourceIndex) -> Iterator[Hit]:
    """Sets of parameters or modules, iterated: they are ordered by address."""
    for made in list_set_expressions(index):
        inner = made.args[0] if isinstance(made, ast.Call) and made.args else made
        if isinstance(inner, (ast.SetComp, ast.ListComp, ast.GeneratorExp)):
            clause = inner.generators[0]
            same = (
                isinstance(inner.elt, ast.Name)
                and isinstance(clause.target, ast.Name)
                and inner.elt.id == clause.target.id
            )
            inner = clause.iter if same else inner
        if not isinstance(inner, ast.Call) or last_identifier(inner.func) not in OBJECT_LISTS:
            continue
        flow = OrderFlow(index)
        use = flow.find_use(made, "set")
        if use is not None and isinstance(use.taken, ast.expr):
            yield Hit(
                use.taken, f"a set of {last_identifier(inner.func)} is ordered by address, and this order {use.effect}"
            )


def find_sorts_by_address(index: SourceIndex) -> Iterator[Hit]:
    """`sorted(..., key=id)`, and `.sort(key=id)`."""
    for call in [*index.calls_by_last_name.get("sorted", ()), *index.calls_by_last_name.get("sort", ())]:
        key = keyword_value(call, "key")
        if key is None:
            continue
        body = key.body if isinstance(key, ast.Lambda) else key
        by = index.qualified_name(body.func) if isinstance(body, ast.Call) else index.qualified_name(body)
        if by in ("id", "hash") and not (by == "hash" and isinstance(body, ast.Call) and _hashes_number(index, body)):
            kind = (
                "an address, which changes from run to run"
                if by == "id"
                else "for text it changes from process to process"
            )
            yield Hit(call, f"{by}() is {kind}", cause="object-id" if by == "id" else "hash-order")


def _hashes_number(index: SourceIndex, call: ast.Call) -> bool:
    return bool(call.args) and value_kind(index, call.args[0]) == "number"


def find_completion_orders(index: SourceIndex) -> Iterator[Hit]:
    """Results in the order in which they are ready, where that order counts."""
    for call in index.calls_by_name.get("torch.utils.data.DataLoader", ()):
        in_order = keyword_value(call, "in_order")
        if in_order is not None and is_constant(in_order, False):
            start, end = node_span(in_order)
            yield Hit(
                call, "in_order=False: batches come in the order in which workers finish", (Edit(start, end, "True"),)
            )
    for last in ("as_completed", "imap_unordered"):
        for call in index.calls_by_last_name.get(last, ()):
            use = OrderFlow(index, files=False).find_use(call, "seq")
            if use is not None and (use.effect != NUMBERS or assigns_class_or_token_ids_by_name(index, use.node)):
                yield Hit(call, f"results come in the order in which they are ready, which {use.effect}")


def find_hash_buckets(index: SourceIndex) -> Iterator[Hit]:
    """`hash(text) % n`: an index that changes with the hash seed."""
    for call in index.calls_by_name.get("hash", ()) if not reads_hash_seed(index) else ():
        operation = index.parents.get(call)
        while isinstance(operation, ast.Call) and last_identifier(operation.func) in ("abs", "int"):
            operation = index.parents.get(operation)
        if not isinstance(operation, ast.BinOp) or not isinstance(operation.op, (ast.Mod, ast.BitAnd)) or not call.args:
            continue
        function = index.enclosing_def(call)
        if function is not None and function.name == "__hash__":
            continue
        if re.search("cache|colou?r", ast.unparse(index.statement_of(call)), re.IGNORECASE):
            continue  # where it lies in a cache, or how it is drawn, changes no result
        if value_kind(index, call.args[0]) != "text" or _becomes_seed(index, operation):
            continue
        yield Hit(call, "hash() of text is another number in every process, and so is this index")


def _becomes_seed(index: SourceIndex, node: ast.AST) -> bool:
    for one in index.ancestors(node):
        if isinstance(one, ast.Call) and "seed" in last_identifier(one.func).lower():
            return True
        if isinstance(one, ast.keyword) and one.arg is not None and "seed" in one.arg:
            return True
        if isinstance(one, ast.Assign):
            return any("seed" in last_identifier(target).lower() for target in one.targets)
        if isinstance(one, ast.stmt):
            return False
    return False


def find_first_training_in_queue_arrival_order(index: SourceIndex) -> Iterator[Hit]:
    """Training on what several threads or processes put into one queue, as it comes."""
    makers = {"threading.Thread", "multiprocessing.Process", "torch.multiprocessing.Process"}
    for made in index.calls_of(*makers):
        if not any(isinstance(one, (ast.For, ast.ListComp, ast.GeneratorExp)) for one in index.ancestors(made)):
            continue
        target = keyword_value(made, "target")
        functions = (
            [one for one in index.bindings_of(target) if isinstance(one, FUNCTIONS)]
            if isinstance(target, ast.Name)
            else []
        )
        for function in functions:
            if not any(
                isinstance(node, ast.Call) and last_identifier(node.func) == "put" for node in ast.walk(function)
            ):
                continue
            for get in index.calls_by_last_name.get("get", ()):
                loops = [one for one in index.ancestors(get) if isinstance(one, (ast.For, ast.While))]
                several = isinstance(get.func, ast.Attribute) and isinstance(get.func.value, ast.Subscript)
                if get.args or several or not loops or index.is_inside(get, function):
                    continue
                if any(
                    isinstance(node, ast.Call) and last_identifier(node.func) == "backward"
                    for node in ast.walk(loops[0])
                ):
                    yield Hit(get, "which of the threads or processes is first decides the order of the training steps")
                    return


def find_unlocked_shared_model_training(index: SourceIndex) -> Iterator[Hit]:
    """A model that several threads or processes train at the same time, without a lock."""
    makers = {"threading.Thread", "multiprocessing.Process", "torch.multiprocessing.Process"}
    for made in index.calls_of(*makers):
        if not any(isinstance(one, (ast.For, ast.ListComp, ast.GeneratorExp)) for one in index.ancestors(made)):
            continue
        target, arguments = keyword_value(made, "target"), keyword_value(made, "args")
        if not isinstance(target, ast.Name) or not isinstance(arguments, ast.Tuple):
            continue
        shared = {one.id for one in arguments.elts if isinstance(one, ast.Name) and "model" in one.id.lower()}
        for function in (one for one in index.bindings_of(target) if isinstance(one, FUNCTIONS)):
            locked = any(
                (isinstance(node, ast.With) and "lock" in ast.unparse(node.items[0]).lower())
                or (isinstance(node, ast.Attribute) and node.attr == "acquire")
                for node in ast.walk(function)
            )
            if shared and not locked and _computes_gradients_and_updates(function):
                yield Hit(made, "threads or processes update one model at the same time, in an order of chance")


def _computes_gradients_and_updates(function: ast.AST) -> bool:
    calls = {last_identifier(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    steps = "backward" in calls or "grad" in calls
    return steps and bool(calls & {"step", "sub_", "add_", "copy_"})


SET_ORDER = Rule(
    "SR122", "set-order", "hash-order",
    "Finds sets of text that are iterated where the order reaches a tensor, a number or a draw.",
    "The order of a set of text follows hash(), which has another key in every process.",
    "words = \"to be or not to be\".split()\nnumbers = {word: i for i, word in enumerate(set(words))}\n",
    "words = \"to be or not to be\".split()\nnumbers = {word: i for i, word in enumerate(sorted(set(words)))}\n",
    "iterate over sorted(...) of the set",
    "Elements that are numbers, where the text does not say so.",
    find_sets_in_order, default=False, needs_seed=True,
)  # fmt: skip
SORT_BY_ADDRESS = Rule(
    "SR123", "sort-by-address", "object-id",
    "Finds sorted(..., key=id) and key=hash.",
    "Addresses, and hashes of text, change from run to run.",
    "layers = [object(), object()]\nlayers.sort(key=id)\n",
    "layers = [(\"b\", object()), (\"a\", object())]\nlayers.sort(key=lambda layer: layer[0])\n",
    "order by something that belongs to the object: a name, its position",
    "An order that only has to be the same within one run.",
    find_sorts_by_address,
)  # fmt: skip
SET_OF_MODULES = Rule(
    "SR124", "set-of-modules", "object-id",
    "Finds sets of parameters or modules that are iterated where the order counts.",
    "They are hashed by address: an optimizer, a draw for each of them, a list on disk get another order in every run.",
    "import torch\n\nmodel = torch.nn.Linear(2, 2)\n"
    "optimizer = torch.optim.SGD(list(set(model.parameters())), lr=0.1)\n",
    "import torch\n\nmodel = torch.nn.Linear(2, 2)\n"
    "optimizer = torch.optim.SGD(list(dict.fromkeys(model.parameters())), lr=0.1)\n",
    "use dict.fromkeys(...), which drops repetitions and keeps the order",
    "An optimizer that treats each parameter alone, and whose state is not saved. Off by default.",
    find_sets_of_modules, default=False,
)  # fmt: skip
COMPLETION_ORDER = Rule(
    "SR125", "completion-order", "async-order",
    "Finds results that are used in the order in which they are ready: as_completed, imap_unordered, in_order=False.",
    "Which worker is first depends on the load of the machine.",
    "from torch.utils.data import DataLoader\n\nloader = DataLoader(range(9), num_workers=2, in_order=False)\n",
    "from torch.utils.data import DataLoader\n\nloader = DataLoader(range(9), num_workers=2, in_order=True)\n",
    "use map, which keeps the order, or put each result where its number says",
    "A caller that sorts what it gets.",
    find_completion_orders,
)  # fmt: skip
HASH_BUCKET = Rule(
    "SR126", "hash-bucket", "hash-order",
    "Finds `hash(x) % n`, unless x is seen to be a number.",
    "The hash of text is another one in every process: features, shards and splits change with it.",
    "def bucket(word):\n    return hash(word) % 97\n",
    "import zlib\n\n\ndef bucket(word):\n    return zlib.crc32(word.encode()) % 97\n",
    "use zlib.crc32 or hashlib, which give fixed numbers",
    "hash() of numbers, where the text does not say that they are; stand-ins for tests. Off by default.",
    find_hash_buckets, default=False,
)  # fmt: skip
ARRIVAL_ORDER = Rule(
    "SR127", "arrival-order", "async-order",
    "Finds training steps on what several threads or processes put into one queue.",
    "Which of them is first depends on the load of the machine.",
    "import queue\nimport threading\n\nitems = queue.Queue()\n\n\ndef act(rank):\n    items.put(rank)\n\n\n"
    "def train(model):\n    for rank in range(4):\n        threading.Thread(target=act, args=(rank,)).start()\n"
    "    while True:\n        model(items.get()).backward()\n",
    "import queue\nimport threading\n\nitems = [queue.Queue() for _ in range(4)]\n\n\ndef act(rank):\n"
    "    items[rank].put(rank)\n\n\n"
    "def train(model):\n    for rank in range(4):\n        threading.Thread(target=act, args=(rank,)).start()\n"
    "    for rank in range(4):\n        model(items[rank].get()).backward()\n",
    "give each of them a queue of its own, and take from them in turn",
    "What is taken is put in order before it is used.",
    find_first_training_in_queue_arrival_order, default=False,
)  # fmt: skip
SHARED_UPDATES = Rule(
    "SR128", "shared-updates", "thread-race",
    "Finds threads or processes that train one model at the same time without a lock.",
    "Which update comes first, and which is lost, changes from run to run.",
    "import threading\n\n\ndef work(model, optimizer):\n    model(1).backward()\n    optimizer.step()\n\n\n"
    "def train(model, optimizer):\n    for _ in range(2):\n"
    "        threading.Thread(target=work, args=(model, optimizer)).start()\n",
    "import threading\n\n\ndef work(model, optimizer):\n    model(1).backward()\n    optimizer.step()\n\n\n"
    "def train(model, optimizer):\n    for _ in range(2):\n        work(model, optimizer)\n",
    "let one thread update the model, in a fixed order",
    "Hogwild training on purpose, as most of it is. Off by default.",
    find_unlocked_shared_model_training, default=False,
)  # fmt: skip
WRITTEN_SET = Rule(
    "SR130", "written-set", "hash-order",
    "Finds sets of text whose order is that in which a vocabulary, or a list of labels, is written.",
    "The order of a set of text follows hash(): the file has its lines in another order in every run.",
    "words = set(\"to be or not to be\".split())\nwith open(\"vocabulary.txt\", \"w\") as out:\n"
    "    for word in words:\n        out.write(word)\n",
    "words = set(\"to be or not to be\".split())\nwith open(\"vocabulary.txt\", \"w\") as out:\n"
    "    for word in sorted(words):\n        out.write(word)\n",
    "iterate over sorted(...) of the set",
    "Files whose readers find each word again, with what stands beside it. Off by default.",
    find_string_sets_written_to_vocabularies, default=False,
)  # fmt: skip
