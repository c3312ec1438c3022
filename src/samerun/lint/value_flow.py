"""Where an order goes: from a listing or a set, forward through a function, its class and its module.

The order of a listing does no harm where it is sorted, counted or asked for members. It does where it reaches a
tensor, a split, a number given to each element, a draw of random numbers or a file. Only what is written in the text
is followed; where a value leaves it (a call of another module), it is taken to be harmless.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import is_constant, keyword_value, parameter_for
from samerun.lint.element_numbers import (
    appends_number_of_turn,
    enumerated_names,
    gives_number_to_entry,
    is_count,
    names_that_differ_in_each_iteration,
    numbers_keys,
    uses_number_outside_subscript,
)
from samerun.lint.order_exemptions import (
    SORTING,
    begins_as_dictionary,
    depends_on_element,
    draws_anew_in_each_turn,
    have_contradictory_equality_conditions,
    ignores_elements,
    is_assigned_from_counter_call,
    is_log,
    is_made_outside,
    is_only_inference,
    is_only_key,
    is_only_looked_up,
    is_only_shown,
    is_rebound_to_sorted_value,
    is_shuffled_list_only_iterated,
    is_shuffled_unseeded,
    is_sorted_at_mention,
    picks_among_arguments,
    sorts_what_it_goes_through,
)
from samerun.lint.random_draws import draws_from_global_generator
from samerun.lint.slice_exemptions import is_batch, is_cut_set, is_train_test_split_or_has_complement, takes_no_part
from samerun.lint.source_index import Function, SourceIndex
from samerun.lint.value_origins import loads_bound_in

MAX_STEPS = 400  # expressions followed from one source; what lies behind is taken to be harmless

ORDER_FREE = SORTING | {
    "len", "set", "frozenset", "any", "all", "min", "max", "sum", "print", "isinstance", "bool", "str", "repr", "type",
    "id", "issubset", "issuperset", "isdisjoint", "unique", "join_paths", "info", "debug", "warning", "error",
}  # fmt: skip
ORDER_KEEPING = {
    "list", "tuple", "enumerate", "iter", "reversed", "zip", "map", "filter", "tqdm", "trange", "track", "chain",
    "islice", "from_iterable", "deque", "dict", "OrderedDict", "fromkeys", "array", "asarray", "Series", "DataFrame",
    "starmap", "copy", "deepcopy", "cycle", "imap", "join", "progress_bar", "concatenate", "DictConfig",
}  # fmt: skip
TENSOR_MAKERS = {
    "torch.tensor", "torch.as_tensor", "torch.stack", "torch.cat", "torch.concat", "torch.vstack", "torch.hstack",
    "torch.LongTensor", "torch.FloatTensor", "torch.IntTensor", "torch.Tensor", "torch.from_numpy", "numpy.stack",
    "numpy.vstack", "numpy.hstack", "numpy.fromiter",
}  # fmt: skip
FILE_WRITERS = {"json.dump", "pickle.dump", "torch.save", "numpy.save", "numpy.savez", "numpy.savetxt", "yaml.dump",
                "joblib.dump", "json.dumps"}  # fmt: skip
WRITING_METHODS = {"write", "writelines", "writerow", "writerows", "to_csv", "to_json", "to_parquet", "to_pickle"}
LISTINGS = ("os.listdir", "os.scandir", "glob.glob", "glob.iglob")
MODEL_MAKERS = ("torch.optim.", "torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ParameterList")
PAIRS = "pairs it with another listing"
NUMBERS = "numbers the elements"
POSITIONS = "is what index() gives numbers by"
SAMPLES = "is the order of the samples of"
CHOSEN = "decides which elements the slice has"
LIST_DISPLAYS = (ast.List, ast.ListComp)
SET_OPERATIONS = {"union", "intersection", "difference", "symmetric_difference", "copy"}


@dataclass(frozen=True)
class OrderUse:
    """Where an order has an effect, and which, as the end of a sentence. `taken`: where a set first got an order.

    `drawn`: the effect is beside draws, so that it shows only if something seeds them.
    """

    node: ast.AST
    effect: str
    taken: ast.AST
    drawn: bool

    @property
    def samples(self) -> bool:
        """Whether it is the order of a dataset's samples, which counts where they are drawn."""
        return self.effect.startswith(SAMPLES)


class OrderFlow:
    """The way of one order. `kind`: "set" while no order was taken from it, "seq", "dict" or "counter".

    `files`: whether the order in which a file is written counts; `slices`: whether a slice counts that takes some
    elements, and not a part of the data beside another part.
    """

    def __init__(self, index: SourceIndex, *, files: bool = True, slices: bool = True) -> None:
        self.index, self.files, self.slices = index, files, slices
        self.only_inference = is_only_inference(index)
        self.seen: set[tuple[ast.AST, str]] = set()
        self.entered: dict[Function, list[ast.Call]] = {}
        self.todo: list[tuple[ast.AST, str, ast.AST | None]] = []
        self.at: ast.AST = index.tree
        self.taken: ast.AST | None = None

    def find_use(self, source: ast.AST, kind: str) -> OrderUse | None:
        """The first place where the order of `source` has an effect, nearest first; None if none is seen."""
        self._push(source, kind)
        while self.todo and len(self.seen) < MAX_STEPS:
            self.at, kind, self.taken = self.todo.pop(0)
            if (self.at, kind) in self.seen:
                continue
            self.seen.add((self.at, kind))
            if (use := self._follow(self.at, kind)) is not None:
                return use
        return None

    def _push(self, node: ast.AST, kind: str) -> None:
        self.todo.append((node, kind, self.taken or (self.at if kind != "set" else None)))

    def _make_file_write_order_use(self, node: ast.AST, writer: str) -> OrderUse | None:
        if not self.files or is_log(self.index, node):
            return None
        return self._use(node, f"is the order in which {writer}() writes")

    def _use(self, node: ast.AST, effect: str, *, drawn: bool = False) -> OrderUse:
        return OrderUse(node, effect, self.taken or self.at, drawn)

    def _follow(self, node: ast.AST, kind: str) -> OrderUse | None:
        parent = self.index.parents.get(node)
        if isinstance(parent, ast.Starred):
            node, parent = parent, self.index.parents.get(parent)
        call = self.index.parents[parent] if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call):
            return self._follow_argument(call, node, kind)
        if isinstance(parent, ast.Attribute):
            return self._follow_method(parent, kind)
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return self._follow_slice_or_varying_index(parent, kind)
        if isinstance(parent, (ast.For, ast.AsyncFor)) and parent.iter is node:
            return self._follow_loop(parent, kind)
        if isinstance(parent, ast.comprehension) and parent.iter is node:
            return self._follow_comprehension(parent, kind)
        if isinstance(parent, ast.BinOp):
            both = ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor
            if isinstance(parent.op, both if kind == "set" else (ast.Add, ast.Mult)):
                self._push(parent, kind)
        elif isinstance(parent, (ast.BoolOp, ast.NamedExpr, ast.Await)) or (
            isinstance(parent, ast.IfExp) and node is not parent.test
        ):
            self._push(parent, kind)
            if isinstance(parent, ast.NamedExpr):
                self._follow_target(parent.target, kind)
        elif isinstance(parent, (ast.List, ast.Tuple)) and isinstance(parent.ctx, ast.Load):
            if isinstance(node, ast.Starred):
                self._push(parent, "seq")
            elif isinstance(self.index.parents.get(parent), ast.Return):
                self._follow_returned_item(parent, parent.elts.index(node), kind)  # type: ignore[arg-type]
        elif isinstance(parent, (ast.Assign, ast.AnnAssign)):
            for target in parent.targets if isinstance(parent, ast.Assign) else [parent.target]:
                self._follow_target(target, kind)
        elif isinstance(parent, ast.AugAssign) and parent.value is node:
            self._follow_target(parent.target, kind)
        elif isinstance(parent, ast.withitem) and parent.optional_vars is not None:
            self._follow_target(parent.optional_vars, kind)
        elif isinstance(parent, (ast.Return, ast.YieldFrom)):
            self._follow_return_value_to_callers(parent, kind)
        return None

    def _follow_argument(self, call: ast.Call, node: ast.AST, kind: str) -> OrderUse | None:
        index = self.index
        name, last = index.call_names.get(call, ""), last_identifier(call.func)
        if last in ORDER_FREE or (last == "join" and name.endswith("path.join")):
            return None
        if name in TENSOR_MAKERS:
            if kind == "seq" and not is_rebound_to_sorted_value(index, call):
                self._push(call, kind)
            return None
        if last == "shuffle" and is_shuffled_list_only_iterated(index, call, node):
            return None
        if picks_among_arguments(index, call) and index.called_function(call) is None:
            return self._use(call, f"decides what {last}() picks", drawn=True)
        by_name = is_constant(keyword_value(call, "sort_keys"), True) or keyword_value(call, "arcname") is not None
        if kind not in ("set", "dict") and (name in FILE_WRITERS or last in WRITING_METHODS) and not by_name:
            return self._make_file_write_order_use(call, last)
        if name.startswith(MODEL_MAKERS):
            return self._use(call, f"is the order in which {last} takes them")
        function = index.called_function(call)
        if function is not None:
            parameter = parameter_for(call, node, function)
            if parameter is not None:
                self.entered.setdefault(function, []).append(call)
                self._push_loads(parameter.arg, function, parameter, kind)
        elif last in ORDER_KEEPING:
            others = [one for one in call.args if one is not node]
            if last == "zip" and any(isinstance(one, ast.Call) and index.call_names[one] in LISTINGS for one in others):
                return self._use(call, PAIRS)
            if last in ("dict", "OrderedDict") and numbers_keys(node):
                return self._use(call, NUMBERS)
            self._push(call, "dict" if last in ("dict", "OrderedDict", "fromkeys") else "seq")
        elif kind != "set" and name.startswith("torch.utils.data.") and not self.only_inference:
            return self._use(call, f"{SAMPLES} {last}", drawn=True)
        elif isinstance(call.func, ast.Attribute) and last in ("extend", "update"):
            receiver = call.func.value
            counter = last == "update" and is_assigned_from_counter_call(index, receiver)
            if last == "extend" or counter or kind == "dict":
                self._follow_target(receiver, "counter" if counter else "seq" if last == "extend" else "dict")
        return None

    def _follow_method(self, attribute: ast.Attribute, kind: str) -> OrderUse | None:
        call = self.index.parents.get(attribute)
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return None
        method = attribute.attr
        if kind == "set":
            if method in SET_OPERATIONS:
                self._push(call, kind)
        elif method == "most_common" and kind == "counter":
            return self._use(call, "decides ties in most_common()")
        elif method in ("copy", "keys", "values", "items", "tolist", "elements"):
            self._push(call, kind)
        elif method == "index" and kind == "seq" and not is_only_looked_up(self.index, call):
            return self._use(call, POSITIONS)
        elif method in WRITING_METHODS:
            return self._make_file_write_order_use(call, method)
        return None

    def _follow_slice_or_varying_index(self, subscript: ast.Subscript, kind: str) -> OrderUse | None:
        if kind != "seq" or not isinstance(subscript.ctx, ast.Load):
            return None
        where = subscript.slice
        if isinstance(where, ast.Slice):
            if takes_no_part(self.index, subscript, where):
                self._push(subscript, kind)
            elif is_batch(self.index, where):
                return self._use(subscript, f"{SAMPLES} a batch", drawn=True)
            elif not is_only_shown(self.index, subscript) and not is_cut_set(self.index, subscript):
                if self.slices or is_train_test_split_or_has_complement(self.index, subscript):
                    return self._use(subscript, CHOSEN)
                self._push(subscript, kind)
            return None
        function = self.index.enclosing_def(subscript)
        sample = function is not None and function.name == "__getitem__" and not isinstance(where, ast.Constant)
        if sample and not self.only_inference:
            return self._use(subscript, f"{SAMPLES} __getitem__", drawn=True)
        if any(draws_from_global_generator(self.index, call) for call in ast.walk(where) if isinstance(call, ast.Call)):
            return self._use(subscript, "decides what a random index picks", drawn=True)
        if isinstance(where, ast.Name):
            for bound in self.index.bindings_of(where):
                loop = self.index.parents.get(bound)
                if isinstance(loop, ast.For) and loop.target is bound and self.index.is_inside(subscript, loop):
                    return self._follow_loop(loop, kind)
                if isinstance(loop, ast.comprehension) and loop.target is bound and is_count(loop.iter):
                    return self._follow_comprehension(loop, kind)
        return None

    def _follow_comprehension(self, clause: ast.comprehension, kind: str) -> OrderUse | None:
        made = self.index.parents[clause]
        if not isinstance(made, ast.SetComp) and not depends_on_element(made, clause):
            return None  # the same for each element
        parts = [made.key, made.value] if isinstance(made, ast.DictComp) else [made.elt]  # type: ignore[attr-defined]
        for part in parts:
            for call in ast.walk(part):
                if isinstance(call, ast.Call) and draws_anew_in_each_turn(self.index, call, made):
                    return self._use(call, "decides which element gets which random numbers", drawn=True)
        numbers = enumerated_names(clause.target, clause.iter)
        if isinstance(made, ast.DictComp):
            if uses_number_outside_subscript(made.value, numbers) and not is_only_shown(self.index, made):
                return self._use(made, NUMBERS)
            self._push(made, "dict")
        elif not isinstance(made, ast.SetComp):
            self._push(made, "seq")
        return None

    def _follow_loop(self, loop: ast.For | ast.AsyncFor, kind: str) -> OrderUse | None:
        """What a loop over the order does with it, other than element by element."""
        index = self.index
        body = [node for statement in loop.body for node in ast.walk(statement)]
        numbers = names_that_differ_in_each_iteration(loop, body)
        if sorts_what_it_goes_through(body) or ignores_elements(loop.target, numbers, body):
            return None  # sorted again before it is used: os.walk, say
        for node in body:
            if (use := self._find_use_in_loop_node(node, loop, numbers)) is not None:
                return use
            if isinstance(node, (ast.Yield, ast.YieldFrom)):
                self._follow_return_value_to_callers(node, "seq")
            elif isinstance(node, ast.AugAssign) and is_made_outside(index, node.target, loop):
                if appends_number_of_turn(index, node, loop, numbers):
                    return self._use(node, NUMBERS)
                if any(isinstance(one, LIST_DISPLAYS) for one in (node.value, *index.values_assigned_to(node.target))):
                    self._follow_target(node.target, "seq", after=loop)
        return None

    def _find_use_in_loop_node(self, node: ast.AST, loop: ast.For | ast.AsyncFor, numbers: set[str]) -> OrderUse | None:
        index = self.index
        if isinstance(node, ast.Call):
            last = last_identifier(node.func)
            if last == "backward":
                return self._use(node, "is the order of the training steps", drawn=True)
            if draws_anew_in_each_turn(index, node, loop):
                return self._use(node, "decides which element gets which random numbers", drawn=True)
            if not isinstance(node.func, ast.Attribute):
                return None
            receiver = node.func.value
            writes = last in WRITING_METHODS and last.startswith("write") and keyword_value(node, "arcname") is None
            if writes and is_made_outside(index, receiver, loop):
                return self._make_file_write_order_use(node, last)
            if last == "append" and index.is_before_break(node, loop):  # a search, which takes what it finds
                return None
            if last in ("append", "extend", "insert", "appendleft") and is_made_outside(index, receiver, loop):
                if appends_number_of_turn(index, node, loop, numbers):
                    return self._use(node, NUMBERS)
                self._follow_target(receiver, "seq", after=loop)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if not is_made_outside(index, target.value, loop):
                return None
            counted = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)} & numbers
            length = isinstance(node.value, ast.Call) and last_identifier(node.value.func) == "len"
            same = length and node.value.args and ast.dump(node.value.args[0]) == ast.dump(target.value)  # type: ignore
            filled = isinstance(target.slice, ast.Name) and target.slice.id in numbers
            if filled and (not begins_as_dictionary(index, target.value) or is_only_key(index, target.slice, loop)):
                self._follow_target(target.value, "seq", after=loop)
                return None
            if same or filled or (counted and gives_number_to_entry(index, node, loop)):
                return self._use(node, NUMBERS)
            self._follow_target(target.value, "dict", after=loop)
        return None

    def _follow_target(self, target: ast.expr, kind: str, after: ast.AST | None = None) -> None:
        """Everywhere that a name, or an attribute of self, is read once it holds the order."""
        index = self.index
        if isinstance(target, ast.Attribute):
            mentions = index.self_attributes(target)
            if not any(is_sorted_at_mention(index, one) for one in mentions):
                for one in mentions:
                    if isinstance(one.ctx, ast.Load) and not have_contradictory_equality_conditions(index, target, one):
                        self._push(one, kind)
            return
        if not isinstance(target, ast.Name):
            return
        bound = index.binding_scope(target) if isinstance(target.ctx, ast.Load) else None
        scope = bound or index.enclosing_scope_of(target)
        self._push_loads(target.id, scope, after if after is not None else index.statement_of(target), kind)

    def _push_loads(self, name: str, scope: ast.AST, own: ast.AST, kind: str) -> None:
        """Where a name is read behind what gives it the order, until it is bound anew; in other scopes, everywhere."""
        start = (getattr(own, "end_lineno", 0) or 0, getattr(own, "end_col_offset", 0) or 0)
        loads = loads_bound_in(self.index, name, scope)
        end = self._find_end_of_next_binding_or_reordering(name, scope, own, start, loads)
        for load in loads:
            elsewhere = self.index.enclosing_scope_of(load) is not scope
            if (
                elsewhere or start <= (load.lineno, load.col_offset) < end
            ) and not have_contradictory_equality_conditions(self.index, own, load):
                self._push(load, kind)

    def _find_end_of_next_binding_or_reordering(
        self, name: str, scope: ast.AST, own: ast.AST, start: tuple[int, int], loads: list[ast.Name]
    ) -> tuple[int, int]:
        """Where the name is bound anew, or sorted or shuffled in place, on every path behind a statement."""
        index = self.index
        around = {own, *index.ancestors(own)}
        ends = [(1 << 30, 0)]
        ordered = [one for one in loads if is_sorted_at_mention(index, one) or is_shuffled_unseeded(index, one)]
        for one in [*index.bindings[scope].get(name, ()), *ordered]:
            if not isinstance(one, ast.Name):
                continue
            statement = index.statement_of(one)
            if isinstance(statement, ast.AugAssign) or (statement.lineno, statement.col_offset) < start:
                continue
            always = index.parents.get(statement) in around or is_sorted_at_mention(index, one)
            if always and not isinstance(statement, (ast.For, ast.AsyncFor)):
                ends.append((statement.end_lineno or statement.lineno, statement.end_col_offset or 0))
        return min(ends)

    def _follow_return_value_to_callers(self, node: ast.AST, kind: str) -> None:
        function = self.index.enclosing_def(node)
        for call in self._list_calls_back(function):
            self._push(call, kind)

    def _list_calls_back(self, function: Function | None) -> list[ast.Call]:
        """Where a result goes: to the calls by which the order came in, or, if it began inside, to all of them."""
        return (self.entered.get(function) or self.index.calls_of_function(function)) if function is not None else []

    def _follow_returned_item(self, node: ast.Tuple | ast.List, position: int, kind: str) -> None:
        function = self.index.enclosing_def(node)
        for call in self._list_calls_back(function):
            assign = self.index.parents.get(call)
            for target in assign.targets if isinstance(assign, ast.Assign) else ():
                if isinstance(target, ast.Tuple) and position < len(target.elts):
                    self._follow_target(target.elts[position], kind)
