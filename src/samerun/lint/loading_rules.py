"""Rules about data: how it is split and loaded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import (
    Edit,
    find_imported_name_of_module,
    last_identifier,
    make_insert_argument_edits,
    node_span,
)
from samerun.lint.call_arguments import has_star, is_constant, keyword_value
from samerun.lint.order_exemptions import draws_from_unseeded_global, trains
from samerun.lint.random_draws import GENERATOR_MAKERS, drawn_generator, is_for_display
from samerun.lint.rule import Hit, Rule
from samerun.lint.seeding import calls_unknown_seeding, has_main_guard_or_top_level_block, is_fallback, is_never_called
from samerun.lint.source_index import Function, SourceIndex
from samerun.lint.value_flow import OrderFlow
from samerun.lint.value_origins import find_origins, names_in


def _is_seeded_somewhere(index: SourceIndex, *names: str) -> bool:
    return any(index.calls_by_name.get(name) for name in names) or calls_unknown_seeding(index)


TRAINING = re.compile("train|fit|learn|optimi|step|run|experiment", re.IGNORECASE)
"""Names of functions that use a split."""


def find_unseeded_splits(index: SourceIndex) -> Iterator[Hit]:
    """`random_split` with neither a generator nor a seed before it, in a program that starts itself."""
    if _is_seeded_somewhere(index, "torch.manual_seed", "torch.seed", "torch.set_rng_state"):
        return
    if not trains(index) and not any(TRAINING.search(last) for last in index.calls_by_last_name):
        return  # a module of data, which may be tried out
    for call in index.calls_of("torch.utils.data.random_split"):
        given = has_star(call) or len(call.args) > 2 or keyword_value(call, "generator") is not None
        if given or is_never_called(index, call) or _gets_stored_indices(index, call):
            continue
        if has_main_guard_or_top_level_block(index):
            torch = find_imported_name_of_module(index.tree, "torch")
            made = f"generator={torch}.Generator().manual_seed(0)"
            edits = tuple(make_insert_argument_edits(call, made)) if torch else ()
            yield Hit(call, "nothing in this program seeds torch, so that every run is split otherwise", edits)


def _gets_stored_indices(index: SourceIndex, call: ast.Call) -> bool:
    """Whether the parts of a split are given other indices, which the program stored when it first ran."""
    parent = index.parents.get(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    names = {one.id for target in targets for one in names_in(target)}
    return any(
        isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and one.attr == "indices"
        and last_identifier(one.value) in names
        for one in index.nodes[ast.Attribute]
    )  # fmt: skip


SKLEARN_ALWAYS = {
    "train_test_split", "ShuffleSplit", "StratifiedShuffleSplit", "GroupShuffleSplit", "RandomForestClassifier",
    "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor", "KMeans", "MiniBatchKMeans", "TSNE",
    "GaussianMixture", "MLPClassifier", "MLPRegressor", "IsolationForest", "BaggingClassifier", "BaggingRegressor",
    "FastICA", "NMF", "LatentDirichletAllocation", "RandomizedSearchCV", "SGDClassifier",
    "SGDRegressor", "make_classification", "make_regression", "make_blobs", "make_moons", "make_circles", "resample",
}  # fmt: skip
EPOCH_METHODS = ("__iter__", "__next__", "on_epoch_end", "on_epoch_begin")
SKLEARN_SHUFFLED = {"KFold", "StratifiedKFold", "StratifiedGroupKFold"}


def find_unseeded_sklearn(index: SourceIndex) -> Iterator[Hit]:
    """Splits and estimators of scikit-learn without `random_state`, where nothing seeds NumPy."""
    if _is_seeded_somewhere(index, "numpy.random.seed", "numpy.random.set_state") or _hands_on_seed(index):
        return
    if _draws_its_states(index):
        return
    program = has_main_guard_or_top_level_block(index)
    for call in index.calls:
        name, last = index.call_names[call], last_identifier(call.func)
        if not name.startswith("sklearn.") or has_star(call) or is_fallback(index, call):
            continue
        if not program and index.enclosing_def(call) is not None:
            continue  # in a library, whose users seed NumPy
        if is_never_called(index, call):
            continue
        shuffled = last in SKLEARN_SHUFFLED and is_constant(keyword_value(call, "shuffle"), True)
        plain = last in SKLEARN_ALWAYS and not is_constant(keyword_value(call, "shuffle"), False)
        function = index.enclosing_def(call)
        if last in ("shuffle", "resample") and function is not None and function.name in EPOCH_METHODS:
            continue  # a fixed state would give every epoch the same order
        shuffle_function = name == "sklearn.utils.shuffle"
        state = keyword_value(call, "random_state")
        if _needs_no_state(index, call):
            continue
        if (shuffled or plain or shuffle_function) and (state is None or is_constant(state, None)):
            edits = (
                make_insert_argument_edits(call, "random_state=0") if state is None else [Edit(*node_span(state), "0")]
            )
            yield Hit(call, f"{last} draws from NumPy's generator, which this file does not seed", tuple(edits))


LIBRARIES = {
    "sklearn", "numpy", "scipy", "pandas", "torch", "torchvision", "tensorflow", "keras", "xgboost", "lightgbm",
    "catboost", "imblearn", "optuna", "datasets", "transformers", "torch_geometric", "jax", "random", "umap", "dask",
    "polars", "ray",
}  # fmt: skip
"""Libraries whose functions use a seed that they are given for themselves alone."""


def _draws_its_states(index: SourceIndex) -> bool:
    """Whether the program gives scikit-learn states that it draws anew in every run, so that it asks for no other."""
    states = (
        keyword_value(call, "random_state") for call in index.calls if index.call_names[call].startswith("sklearn.")
    )
    drawn = (one for state in states if state is not None for one in find_origins(index, state))
    return any(draws_from_unseeded_global(index, one) for one in drawn)


def _hands_on_seed(index: SourceIndex) -> bool:
    """Whether a function of another module of the program is given a seed: it may seed everything, as many do."""
    return any(
        keyword_value(call, "seed") is not None and index.call_names[call]
        and last_identifier(call.func).islower() and index.called_function(call) is None
        and index.call_names[call].partition(".")[0] not in LIBRARIES
        for call in index.calls
    )  # fmt: skip


def _needs_no_state(index: SourceIndex, call: ast.Call) -> bool:
    """Whether `random_state` is stored in what the call makes, given to its `set_params`, or among what is searched.

    What nothing reads needs none.
    """
    parent = index.parents.get(call)
    if isinstance(parent, ast.Expr) or _has_one_part(call):
        return True
    if isinstance(parent, ast.Attribute) and parent.attr == "get_params":
        return True
    if last_identifier(call.func) == "shuffle":
        looped = isinstance(parent, ast.For) and OrderFlow(index, files=False).find_use(call, "seq") is None
        if looped or is_for_display(index, call) or _is_only_scored(index, call):
            return True
    splits = SKLEARN_SHUFFLED | {"train_test_split", "shuffle", "resample", "RandomizedSearchCV"}
    searched = (key for one in index.nodes[ast.Dict] for key in one.keys)  # type: ignore[attr-defined]
    if last_identifier(call.func) not in splits and any(
        isinstance(key, ast.Constant) and str(key.value).endswith("random_state") for key in searched
    ):
        return True
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    if _is_result_assigned_to_unread_name(index, call):
        return True
    return isinstance(target, ast.Name) and any(
        isinstance(one, ast.Attribute) and one.attr in ("random_state", "set_params")
        and isinstance(one.value, ast.Name) and one.value.id == target.id
        for one in index.nodes[ast.Attribute]
    )  # fmt: skip


def _is_result_assigned_to_unread_name(index: SourceIndex, call: ast.Call) -> bool:
    """Whether nothing reads the name for what a call makes, or for what a method of that returns."""
    made: ast.AST = call
    method = index.parents.get(made)
    if isinstance(method, ast.Attribute) and isinstance(index.parents.get(method), ast.Call):
        made = index.parents[method]
    statement = index.parents.get(made)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id not in index.name_loads


def _has_one_part(call: ast.Call) -> bool:
    """Whether a mixture or a clustering has one part, so that it begins in one way: one is the default of a mixture."""
    last = last_identifier(call.func)
    count = call.args[0] if call.args else keyword_value(call, "n_components", "n_clusters")
    if count is None:
        return last == "GaussianMixture"
    return last in ("GaussianMixture", "KMeans", "MiniBatchKMeans") and is_constant(count, 1)


SCORING = re.compile("score|metric|accuracy|auc|report|confusion|print|len")
KEEPING = re.compile("pred|drop|astype|value_counts|reset_index|copy|to_numpy")


def _is_only_scored(index: SourceIndex, call: ast.Call) -> bool:
    """Whether rows that are shuffled are then only predicted for and scored, which gives the same in any order."""
    parent = index.parents.get(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    todo = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple) else [target])]
    seen: set[str] = set()
    scope, begin = index.enclosing_scope_of(call), call.lineno
    while todo:
        target = todo.pop()
        target = target.value if isinstance(target, ast.Subscript) else target
        if not isinstance(target, ast.Name):
            return False
        if target.id in seen:
            continue
        seen.add(target.id)
        for load in index.name_loads.get(target.id, ()):
            if load.lineno <= begin or index.enclosing_scope_of(load) is not scope:
                continue
            used: ast.AST = load
            above = index.parents[used]
            while isinstance(above, (ast.Attribute, ast.Subscript, ast.Call, ast.keyword)):
                if isinstance(above, ast.Subscript) and isinstance(above.slice, ast.Slice):
                    return False
                if isinstance(above, ast.Call) and SCORING.search(last_identifier(above.func)):
                    break
                if isinstance(above, ast.Call) and not KEEPING.search(last_identifier(above.func)):
                    return False
                used, above = above, index.parents[above]
            if isinstance(above, ast.Assign):
                todo += above.targets
            elif not isinstance(above, (ast.Call, ast.Compare, ast.Expr)):
                return False
    return bool(seen)


# --- loading
def find_missing_set_epoch(index: SourceIndex) -> Iterator[Hit]:
    if index.calls_by_last_name.get("set_epoch"):
        return
    for call in index.calls_of("torch.utils.data.DistributedSampler"):
        if not is_constant(keyword_value(call, "shuffle"), False) and not has_star(call):
            yield Hit(call, "nothing calls set_epoch(): every epoch has the same order")


def _dataset_getitem_methods(index: SourceIndex) -> Iterator[tuple[ast.ClassDef, Function]]:
    for owner in index.classes:
        if any("Dataset" in base for base in index.transitive_base_names(owner)):
            method = index.resolve_method(owner, "__getitem__")
            if method is not None and index.class_of(method) is owner:
                yield owner, method


def find_draws_in_getitem(index: SourceIndex) -> Iterator[Hit]:
    """Draws from a global generator in `__getitem__`, or in a method that it calls."""
    for _, method in _dataset_getitem_methods(index):
        for function in _with_called_methods(index, method):
            for call in (one for one in ast.walk(function) if isinstance(one, ast.Call)):
                if drawn_generator(index.call_names[call]) and keyword_value(call, "generator") is None:
                    yield Hit(call, "which numbers an item gets depends on the worker that loads it")


def _with_called_methods(index: SourceIndex, method: Function) -> list[Function]:
    found = [method]
    for call in (one for one in ast.walk(method) if isinstance(one, ast.Call)):
        called = index.called_function(call)
        if called is not None and called not in found and index.class_of(called) is not None:
            found.append(called)
    return found


def find_kept_generators(index: SourceIndex) -> Iterator[Hit]:
    """A generator that a dataset makes once, and from which `__getitem__` draws."""
    makers = GENERATOR_MAKERS | {"torch.Generator"}
    for owner, method in _dataset_getitem_methods(index):
        used = {
            node.attr
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and last_identifier(node.value) == "self"
        }
        for name in sorted(used):
            for mention in index.attributes[owner][name]:
                value = index.assigned_value(mention) if isinstance(mention.ctx, ast.Store) else None
                if value is None or index.enclosing_def(mention) is method:
                    continue
                made = [one for one in find_origins(index, value) if index.call_names[one] in makers]
                if made:
                    yield Hit(made[0], f"every DataLoader worker has a copy of self.{name}: all draw the same numbers")
                    break


def find_unshared_streams(index: SourceIndex) -> Iterator[Hit]:
    """An `IterableDataset` that every worker goes through as a whole."""
    shares = re.compile("worker|rank|shard|islice|num_replicas|split")
    loaders = [one for one in index.calls_of("torch.utils.data.DataLoader") if keyword_value(one, "num_workers")]
    if not loaders:
        return
    for owner in index.classes:
        if not any(base.rpartition(".")[2] == "IterableDataset" for base in index.transitive_base_names(owner)):
            continue
        method = index.resolve_method(owner, "__iter__")
        names = {last_identifier(node) for node in ast.walk(owner) if isinstance(node, (ast.Name, ast.Attribute))}
        if method is not None and not any(shares.search(name) for name in names):
            yield Hit(method, "every worker goes through all of it: more workers give every item more often")


UNSEEDED_SPLIT = Rule(
    "SR141", "unseeded-split", "unseeded-torch",
    "Finds random_split without a generator in a program that seeds torch nowhere.",
    "Every run trains and tests on other samples.",
    "import torch\n\nif __name__ == \"__main__\":\n    train, test = torch.utils.data.random_split(range(9), [6, 3])\n"
    "    fit(train)\n",
    "import torch\n\nif __name__ == \"__main__\":\n    order = torch.Generator().manual_seed(0)\n"
    "    train, test = torch.utils.data.random_split(range(9), [6, 3], generator=order)\n    fit(train)\n",
    "give it generator=torch.Generator().manual_seed(SEED)",
    "A seed that another module sets when it is imported.",
    find_unseeded_splits,
)  # fmt: skip
UNSEEDED_SKLEARN = Rule(
    "SR142", "unseeded-sklearn", "unseeded-numpy-global",
    "Finds splits and estimators of scikit-learn that draw, without random_state, where the file does not seed NumPy.",
    "They draw from NumPy's global generator, which starts from the system's entropy.",
    "from sklearn.model_selection import train_test_split\n\ntrain, test = train_test_split(list(range(9)))\n",
    "from sklearn.model_selection import train_test_split\n\n"
    "train, test = train_test_split(list(range(9)), random_state=0)\n",
    "give it random_state=SEED",
    "A program that calls this module seeds NumPy.",
    find_unseeded_sklearn,
)  # fmt: skip
MISSING_SET_EPOCH = Rule(
    "SR143", "missing-set-epoch", "resume-position",
    "Finds a DistributedSampler in a file that never calls set_epoch().",
    "Every epoch then has the same order.",
    "from torch.utils.data import DistributedSampler\n\nsampler = DistributedSampler(range(9))\nrows = list(sampler)\n",
    "from torch.utils.data import DistributedSampler\n\nsampler = DistributedSampler(range(9))\n"
    "sampler.set_epoch(1)\nrows = list(sampler)\n",
    "call sampler.set_epoch(epoch) before each epoch",
    "Runs do not differ by it; another module may call it. Off by default.",
    find_missing_set_epoch, default=False,
)  # fmt: skip
DRAW_IN_GETITEM = Rule(
    "SR144", "draw-in-getitem", "worker-count",
    "Finds draws from global generators in a dataset's __getitem__ and the methods it calls.",
    "Each worker has a seed of its own, so that the data depends on how many workers there are.",
    "import random\n\nfrom torch.utils.data import Dataset\n\n\nclass Noisy(Dataset):\n    def __getitem__(self, i):\n"
    "        return i + random.random()\n",
    "import random\n\nfrom torch.utils.data import Dataset\n\n\nclass Noisy(Dataset):\n    def __getitem__(self, i):\n"
    "        return i + random.Random(i).random()\n",
    "make a generator from (seed, epoch, index) for each item (samerun.data.KeyedDataset does)",
    "Runs with the same number of workers do not differ by it. Off by default.",
    find_draws_in_getitem, default=False,
)  # fmt: skip
KEPT_GENERATOR = Rule(
    "SR145", "kept-generator", "worker-seed",
    "Finds datasets that make a generator once and draw from it in __getitem__.",
    "Every DataLoader worker gets a copy of it, state and all, again in every epoch.",
    "import random\n\nfrom torch.utils.data import Dataset\n\n\nclass Noisy(Dataset):\n    def __init__(self):\n"
    "        self.noise = random.Random(7)\n\n    def __getitem__(self, i):\n        return i + self.noise.random()\n",
    "import random\n\nfrom torch.utils.data import Dataset\n\n\nclass Noisy(Dataset):\n    def __init__(self):\n"
    "        self.seed = 7\n\n    def __getitem__(self, i):\n"
    "        return i + random.Random((self.seed << 32) + i).random()\n",
    "make a generator from (seed, epoch, index) for each item",
    "Without workers, or with one, runs do not differ by it. Off by default.",
    find_kept_generators, default=False,
)  # fmt: skip
UNSHARED_STREAM = Rule(
    "SR146", "unshared-stream", "worker-count",
    "Finds an IterableDataset that does not look at its worker's number, beside a DataLoader with workers.",
    "Every worker goes through all of it, so that each item comes as often as there are workers.",
    "from torch.utils.data import DataLoader, IterableDataset\n\n\nclass Rows(IterableDataset):\n"
    "    def __iter__(self):\n"
    "        yield from range(9)\n\n\nloader = DataLoader(Rows(), num_workers=2)\n",
    "from torch.utils.data import DataLoader, IterableDataset, get_worker_info\n\n\nclass Rows(IterableDataset):\n"
    "    def __iter__(self):\n        yield from range(get_worker_info().id, 9, 2)\n\n\n"
    "loader = DataLoader(Rows(), num_workers=2)\n",
    "share it out with torch.utils.data.get_worker_info()",
    "A stream without an end, of which each worker gives other parts. Off by default.",
    find_unshared_streams, default=False,
)  # fmt: skip
