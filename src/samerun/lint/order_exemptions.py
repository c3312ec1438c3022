"""When an order does no harm after all: every element is taken, found again, sorted, or only shown."""

from __future__ import annotations

import ast
import re

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import keyword_value
from samerun.lint.random_draws import (
    DISPLAY,
    DRAWING_METHODS_OF_GENERATORS,
    GENERATOR_MAKERS,
    drawn_generator,
    draws_from_global_generator,
    is_for_display,
)
from samerun.lint.seeding import GLOBAL_SEEDS, calls_unknown_seeding, seeds_repeatably
from samerun.lint.source_index import FUNCTIONS, SourceIndex
from samerun.lint.value_origins import find_origins, loads_bound_in, names_in

SORTING = {"sorted", "natsorted", "sort", "humansorted", "os_sorted", "natural_sort", "sort_values", "argsort"}
SHOWING = re.compile(r"^(?:\w*_)?[vp]?print$|^(?:\w*_)?(?:info|debug|warning|error|log|warn|pprint)$")
INFERRING = ("no_grad", "inference_mode")
TRAINING_OR_STORING = ("backward", "zero_grad", "fit", "train", "save", "savez", "dump", "savetxt", "create_dataset")


def is_only_inference(index: SourceIndex) -> bool:
    """Whether the text applies a model, and neither trains one nor stores results: each stands alone."""
    calls = index.calls_by_last_name
    return any(calls.get(name) for name in INFERRING) and not any(calls.get(name) for name in TRAINING_OR_STORING)


def trains(index: SourceIndex) -> bool:
    """Whether the text trains something, so that the order of a tensor's rows is more than that of a table."""
    return any(index.calls_by_last_name.get(one) for one in ("backward", "zero_grad", "fit", "train", "fit_transform"))


def order_use_can_change_result(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a use of an order counts: not in a display, and not in a draw that gives others in each run anyway.

    Half of the modules that draw without a seed belong to programs that seed nothing.
    """
    calls = [node] if isinstance(node, ast.Call) else []
    if isinstance(node, ast.Subscript):
        values = [node.slice, *(value for name in names_in(node.slice) for value in index.values_assigned_to(name))]
        calls = [one for value in values for one in ast.walk(value) if isinstance(one, ast.Call)]
    unseeded = any(draws_from_unseeded_global(index, one) for one in calls)
    return not unseeded and not is_for_display(index, node) and not _is_in_inspection_or_inference_code(index, node)


INSPECTION = re.compile(
    r"(?:^|_)(?:check|verify|inspect|sanity|explore|speed\w*|bench\w*|timing|summari[sz]e|summary|stats?|statistics)(?:_|$)"
)
TRYING_OUT = re.compile(r"(?:^|_)(?:check|verify|inspect|sanity|tester)(?:_|$)")
STANDS_ALONE = re.compile("Infer|Predict|Demo|Test(?![a-z])")


def _is_in_inspection_or_inference_code(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a use stands in a file or function that only looks at data, or in a dataset whose items stand alone."""
    return bool(DISPLAY.search(index.stem) or TRYING_OUT.search(index.stem)) or any(
        INSPECTION.search(one.name) if isinstance(one, FUNCTIONS) else STANDS_ALONE.search(one.name)
        for one in index.ancestors(node) if isinstance(one, (*FUNCTIONS, ast.ClassDef))
    )  # fmt: skip


def draws_from_unseeded_global(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call draws from a global generator of Python or NumPy that the text does not seed, or another class."""
    name = index.call_names.get(call, "")
    kind = drawn_generator(name)
    if name.startswith("sklearn.") and keyword_value(call, "random_state") is None:
        kind = "numpy"
    seeds = [one for one, what in GLOBAL_SEEDS.items() if what == kind]
    own = index.class_of(call)
    where = (None, own) if own is not None else (None, *index.classes)
    seeded = any(seeds_repeatably(index, one) and index.class_of(one) in where for one in index.calls_of(*seeds))
    return bool(seeds) and not seeded and not calls_unknown_seeding(index)


PICKING = {"shuffle", "permutation", "choice", "choices", "sample", "random_split", "train_test_split", "split_data"}


def picks_among_arguments(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call shuffles, chooses or splits what it is given by its positions."""
    last = last_identifier(call.func)
    if last == "split" and isinstance(call.func, ast.Attribute):  # of one of scikit-learn's splitters
        made = (index.call_names.get(one, "") for one in find_origins(index, call.func.value))
        return any(name.startswith("sklearn.model_selection.") for name in made)
    return last in PICKING


def draws_anew_in_each_turn(index: SourceIndex, call: ast.Call, loop: ast.AST) -> bool:
    """Whether a call draws in each turn of a loop or comprehension from a generator that goes on through all turns."""
    if draws_from_global_generator(index, call):
        return not isinstance(loop, (ast.For, ast.AsyncFor)) or not is_after_global_seeding_in_loop(index, call, loop)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in DRAWING_METHODS_OF_GENERATORS:
        return False
    made = [index.call_names.get(one, "") for one in find_origins(index, call.func.value)]
    return any(name in GENERATOR_MAKERS for name in made) and is_made_outside(index, call.func.value, loop)


def is_after_global_seeding_in_loop(index: SourceIndex, draw: ast.Call, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop seeds anew before what it draws, so that each element gets the same numbers."""
    return any(
        index.is_inside(one, loop) and one.lineno < draw.lineno and seeds_repeatably(index, one)
        for one in index.calls_of(*GLOBAL_SEEDS)
    )


LOGS = re.compile(r"(?:^|[^a-z])(?:logs?|logger|fail\w*|err\w*|missing|summary|reports?|debug|skipped)(?:[^a-z]|$)")


def is_log(index: SourceIndex, write: ast.AST) -> bool:
    """Whether a call writes a file for people, by the names in the call and in the `open` of its file."""
    texts = [ast.unparse(write.func)] if isinstance(write, ast.Call) else []
    for one in index.ancestors(write):
        if isinstance(one, ast.With):
            texts += [ast.unparse(item) for item in one.items]
        elif isinstance(one, FUNCTIONS):
            break
    return any(LOGS.search(text.lower()) for text in texts)


VOCABULARY = re.compile(
    "vocab|2id|to_id|(?<![a-z])(?:label|class(?!if|ic)|dict|token|word|tag|categor|alphabet|char(?!t|g)|entit|relation|index)"
)


def is_vocabulary(index: SourceIndex, write: ast.AST) -> bool:
    """Whether a call writes a file whose lines are numbers for its readers, by the names around it."""
    named = [write.func, *write.args] if isinstance(write, ast.Call) else [write]  # index=False says nothing
    named += [one.items[0].context_expr for one in index.ancestors(write) if isinstance(one, ast.With)]
    texts = [ast.unparse(one) for one in named]
    return any(VOCABULARY.search(text.lower()) for text in texts)


def is_shuffled_list_only_iterated(index: SourceIndex, call: ast.Call, node: ast.AST) -> bool:
    """Whether a list that is shuffled in place is then only gone through, by loops that are followed themselves."""
    if not isinstance(node, ast.Name) or not isinstance(index.parents.get(call), ast.Expr):
        return False
    scope = index.binding_scope(node)
    behind = [
        index.parents.get(one) for one in index.name_loads.get(node.id, ())
        if one.lineno > call.lineno and index.binding_scope(one) is scope
    ]  # fmt: skip
    counted = ("len", "print", "tqdm", "enumerate")
    return bool(behind) and all(
        isinstance(one, ast.For) or (isinstance(one, ast.Call) and last_identifier(one.func) in counted)
        for one in behind
    )


def is_assigned_from_counter_call(index: SourceIndex, receiver: ast.expr) -> bool:
    return any(
        isinstance(value, ast.Call) and last_identifier(value.func) == "Counter"
        for value in index.values_assigned_to(receiver)
    )


def is_only_looked_up(index: SourceIndex, position: ast.Call) -> bool:
    """Whether a position is printed, takes its element out, reads what stands there in another list, or is a color."""
    target = index.parents.get(position)
    value = target.targets[0] if isinstance(target, ast.Assign) else position
    if isinstance(value, ast.Name):
        scope = index.enclosing_scope_of(value)
        reads = loads_bound_in(index, value.id, scope)
    else:
        reads = [position]  # type: ignore[list-item]
    if value is position and is_only_shown(index, position):
        return True
    above = [index.parents.get(one) for one in reads]
    return all(
        (isinstance(one, ast.Subscript) and not isinstance(one.ctx, ast.Store))
        or (isinstance(one, ast.Call) and re.search("^pop$|colou?r", last_identifier(one.func)))
        for one in above
    )


def is_only_shown(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a value goes into a message and nowhere else; alone in a statement, a notebook shows it."""
    parent = index.parents.get(node)
    if isinstance(parent, ast.Expr) or (isinstance(node, ast.Subscript) and LOGS.search(last_identifier(node.value))):
        return True
    if isinstance(parent, ast.Call) and last_identifier(parent.func) in ("enumerate", "sorted", "zip"):
        parent = index.parents.get(parent)
    shown = any(
        isinstance(one, ast.Raise) or (isinstance(one, ast.Call) and _shows(one)) for one in index.ancestors(node)
    )
    return shown or (isinstance(parent, ast.For) and _only_shows(parent.body))


def _shows(call: ast.Call) -> bool:
    """Whether a call writes a message."""
    return bool(SHOWING.search(last_identifier(call.func)))


def _only_shows(body: list[ast.stmt]) -> bool:
    """Whether statements do nothing but write messages."""
    return all(
        (isinstance(one, ast.If) and _only_shows([*one.body, *one.orelse]))
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and _shows(one.value))
        for one in body
    )  # fmt: skip


def begins_as_dictionary(index: SourceIndex, target: ast.expr) -> bool:
    """Whether a name or an attribute of self begins as a dictionary, so that numbers in brackets are its keys."""
    makers = ("dict", "OrderedDict", "defaultdict")
    return any(
        isinstance(one, (ast.Dict, ast.DictComp)) or (isinstance(one, ast.Call) and last_identifier(one.func) in makers)
        for one in index.values_assigned_to(target)
    )


def is_only_key(index: SourceIndex, number: ast.expr, loop: ast.AST) -> bool:
    """Whether a loop uses a number only as the key under which it stores: who looks there finds the same elements."""
    name = number.id if isinstance(number, ast.Name) else ""
    uses = [one for one in index.name_loads.get(name, ()) if index.is_inside(one, loop)]
    parents = (index.parents[one] for one in uses)
    return all(isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) for one in parents)


def is_shuffled_unseeded(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a list is shuffled in place by a generator that nothing seeds: no order before it counts."""
    call = index.parents.get(node)
    shuffles = isinstance(call, ast.Call) and last_identifier(call.func) == "shuffle" and node in call.args
    return shuffles and isinstance(index.parents.get(call), ast.Expr) and draws_from_unseeded_global(index, call)  # type: ignore


def is_made_outside(index: SourceIndex, target: ast.expr, loop: ast.AST) -> bool:
    """Whether a name or an attribute of self was there before the loop, so that it sees all its turns."""
    if isinstance(target, ast.Attribute):
        return isinstance(target.value, ast.Name) and target.value.id == "self"
    if not isinstance(target, ast.Name):
        return False
    bound = [one for one in index.bindings_of(target) if not isinstance(index.parents.get(one), ast.AugAssign)]
    return bool(bound) and not any(index.is_inside(one, loop) for one in bound)


def have_contradictory_equality_conditions(index: SourceIndex, a: ast.AST, b: ast.AST) -> bool:
    """Whether two nodes stand under conditions that exclude each other: `split == "train"`, and `split == "test"`."""
    asked = _equalities(index, a)
    return bool(asked) and any(asked.get(key, value) != value for key, value in _equalities(index, b).items())


EVALUATED = re.compile("(?:val|valid|validation|eval|test|testing|pred|predict|inference|infer)", re.IGNORECASE)


def is_for_evaluation_split(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands where a split is said to be one that is only scored: `if split == "val"`, `test_rows =`."""
    statement = index.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AugAssign) else targets
    values = [*_equalities(index, node).values(), *(last_identifier(one).partition("_")[0] for one in targets)]
    return any(isinstance(one, str) and EVALUATED.fullmatch(one) for one in values)


def _equalities(index: SourceIndex, node: ast.AST) -> dict[str, object]:
    """What the conditions around a node say that expressions are equal to."""
    found: dict[str, object] = {}
    child = node
    for one in index.ancestors(node):
        if isinstance(one, ast.If) and child in one.body:
            parts = (
                one.test.values if isinstance(one.test, ast.BoolOp) and isinstance(one.test.op, ast.And) else [one.test]
            )
            for part in parts:
                if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
                    value = part.comparators[0]
                    if isinstance(value, ast.Constant):
                        found[ast.unparse(part.left)] = value.value
        child = one
    return found


def is_sorted_at_mention(index: SourceIndex, node: ast.AST) -> bool:
    """Whether `node` is sorted in place, or bound to what is sorted."""
    parent = index.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr == "sort"
    value = index.assigned_value(node)
    return isinstance(value, ast.Call) and last_identifier(value.func) in SORTING


def is_rebound_to_sorted_value(index: SourceIndex, call: ast.Call) -> bool:
    """Whether the name that a value is given is then bound to the same in another order: `x = x[x[:, 0].argsort()]`."""
    parent = index.parents.get(call)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    others = [index.assigned_value(one) for one in index.bindings_of(target)] if isinstance(target, ast.Name) else []
    return any(
        isinstance(node, ast.Call) and last_identifier(node.func) in SORTING
        for one in others if one is not None and one is not call for node in ast.walk(one)
    )  # fmt: skip


OTHER_LISTINGS = {"listdir", "glob", "iglob", "rglob", "iterdir", "scandir"}


def sorts_what_it_goes_through(body: list[ast.AST]) -> bool:
    """Whether a loop sorts what it collects or is given: not what lies in the folder that is its element."""
    sorts = [node for node in body if isinstance(node, ast.Call) and last_identifier(node.func) in SORTING]
    sorted_values = [node.args[0] if node.args else node for node in sorts]
    return any(
        not isinstance(one, ast.Call) or last_identifier(one.func) not in OTHER_LISTINGS for one in sorted_values
    )


def ignores_elements(target: ast.expr, numbers: set[str], body: list[ast.AST]) -> bool:
    """Whether a loop only counts its turns: `for _ in names`."""
    elements = {one.id for one in names_in(target)} - numbers
    return bool(elements) and not any(isinstance(one, ast.Name) and one.id in elements for one in body)


def depends_on_element(made: ast.AST, clause: ast.comprehension) -> bool:
    """Whether what a comprehension collects, or a later clause of it, mentions the element."""
    names = {one.id for one in ast.walk(clause.target) if isinstance(one, ast.Name)}
    parts = [made.key, made.value] if isinstance(made, ast.DictComp) else [made.elt]  # type: ignore[attr-defined]
    later = made.generators[made.generators.index(clause) + 1 :]  # type: ignore[attr-defined]
    return any(
        isinstance(one, ast.Name) and one.id in names for part in (*parts, *later) for one in ast.walk(part)
    )  # fmt: skip
