"""What the recorder has to know of an operator, read once from its schema."""

from __future__ import annotations

from typing import Any

EMPTY = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
)
"""Allocate memory without writing to it."""
OVERWRITING = frozenset(("aten::copy_", "aten::fill_", "aten::zero_", "aten::_foreach_copy_", "aten::_foreach_zero_"))
UNDECLARED = frozenset(("running_mean", "running_var"))
"""Arguments that batch norms write into although their schemas do not declare it."""
SILENT = frozenset(
    f"aten::{name}"
    for name in (
        "_efficientzerotensor", "set_", "resize_", "_resize_output_", "_local_scalar_dense", "is_pinned",
        "is_same_size",
    )
)  # fmt: skip
OPAQUE = {
    "aten::mkldnn_rnn_layer": 3,
    "aten::_cudnn_rnn": 3,
    "aten::miopen_rnn": 3,
    "aten::cudnn_batch_norm": 3,
    "aten::_batch_norm_with_update": 3,
}
"""Position of an output that is scratch space for the backward: its unused bytes are never written."""
UNORDERED = ("index_put", "scatter", "index_add", "put_", "embedding_dense_backward", "index_select_backward", "histc")
"""Parts of the names of operators that may add in the order in which threads arrive."""


def may_add_in_order_of_arrival(operator_name: str) -> bool:
    """Whether an operator of torch may give other bits in each run, with the same number of threads too."""
    return operator_name.startswith("aten.") and any(part in operator_name for part in UNORDERED)


SILENT_SPACES = frozenset(("profiler", "prim", "debugprims"))
ASYNCHRONOUS_SPACES = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"))
RANK_SPACES = frozenset(("fsdp",))
"""Name spaces whose operators take a rank of a process group as `rank`; elsewhere that is the rank of a matrix."""
BARRIERS = ("barrier", "monitored_barrier_")
"""Collectives that need a tensor only because every collective does: nobody reads it."""
MOVING = frozenset(
    f"aten::{name}" for name in ("clone", "copy_", "_to_copy", "cat", "stack", "_foreach_copy_", "_to_cpu")
)
"""Move elements and compute nothing: what they make of memory that nobody wrote is memory that nobody wrote."""

_PLAIN = (int, float, bool, str, complex, type(None))
_STABLE = frozenset(("dtype", "device", "layout", "memory_format", "Size"))


class NoValues(Exception):
    """An operator on fake or meta tensors, or on those that stand for others: there is nothing to digest."""


class WatchedOperator:
    """One overload of an operator. `native/watch` reads these slots by their offsets.

    `silent`: computes no value (views, metadata, reading a number). `overwrites`: what the written argument held
    before does not matter. `asynchronous`: a collective, whose results may not be there yet when it returns.
    `rank_argument`: position of the argument that says which rank this is (`fsdp.all_gather_copy_in`); -1 without.
    `takes_message`: receives what one rank sends. From whom is recorded beside it, and is no value: a program may learn
    it from a message of whoever was first, and put what came in order.
    """

    __slots__ = (
        "allocates", "async_argument", "asynchronous", "call", "func", "in_place", "name", "name_id", "only_moves",
        "overwrites", "overwrites_first", "random", "rank_argument", "scratch_output", "silent", "takes_message",
        "writes_nothing", "written_arguments",
    )  # fmt: skip

    def __init__(self, func: Any, random_tag: Any, plain_call: Any) -> None:
        schema = func._schema
        space = schema.name.split("::", 1)[0]
        self.func = func
        """Kept alive: operators are looked up by the `id` of this."""
        self.call = func._op if type(func).__call__ is plain_call else func
        """What to call: `func` without its `__call__` in Python, if that only passes the arguments on."""
        self.name = str(func)
        self.name_id = -1
        """Number of the name in the trace's string table; -1 if not known yet."""
        self.written_arguments: list[tuple[int, str]] = [
            (i, argument.name)
            for i, argument in enumerate(schema.arguments)
            if (argument.alias_info is not None and argument.alias_info.is_write)
            or (argument.name in UNDECLARED and "backward" not in schema.name)
        ]
        self.random = random_tag in func.tags
        self.overwrites = bool(self.written_arguments) and (
            self.random or schema.name in OVERWRITING or any(name == "out" for _, name in self.written_arguments)
        )
        self.allocates = schema.name in EMPTY
        self.only_moves = schema.name in MOVING
        self.async_argument = -1
        """Position of a collective's argument that says whether somebody waits for it later."""
        self.scratch_output = OPAQUE.get(schema.name, -1)
        self.silent = bool(getattr(func, "is_view", False)) or space in SILENT_SPACES or schema.name in SILENT
        self.asynchronous = space in ASYNCHRONOUS_SPACES
        self.takes_message = schema.name == "c10d::recv_"
        ranks = [at for at, argument in enumerate(schema.arguments) if argument.name == "rank"]
        self.rank_argument = ranks[0] if ranks and space in RANK_SPACES else -1
        self.writes_nothing = not self.written_arguments and not self.asynchronous and self.scratch_output < 0
        """Writes into none of its arguments."""
        first_alone = [at for at, _ in self.written_arguments] == [0]
        self.in_place = first_alone and not self.asynchronous and not self.overwrites
        """Writes into its first argument only, and returns it."""
        self.overwrites_first = (
            first_alone and not self.asynchronous and self.overwrites and str(schema.arguments[0].type) == "Tensor"
        )
        """Writes into its first argument only, one tensor, and what that held before does not matter."""
        if self.asynchronous:
            self._set_collective_writes(schema)

    def _set_collective_writes(self, schema: Any) -> None:
        """Find what a collective writes: its schema does not declare it, but the names of its arguments tell."""
        name = schema.name.split("::", 1)[1]
        arguments = [(i, argument.name) for i, argument in enumerate(schema.arguments)]
        outputs = [(i, text) for i, text in arguments if text.startswith("output")]
        self.async_argument = next((i for i, text in arguments if text in ("async_op", "asyncOp")), -1)
        if name == "wait_tensor":  # before it the tensor may still be on its way; after it, it is there
            self.written_arguments, self.overwrites, self.asynchronous = arguments[:1], True, False
        elif outputs:
            self.written_arguments, self.overwrites = outputs, True
        elif schema.name.startswith("c10d::") and name != "send":
            self.written_arguments = [(i, text) for i, text in arguments if text in ("tensors", "tensor")]
            self.overwrites = name.startswith("recv") or name in BARRIERS

    def may_return_early(self, args: Any, kwargs: Any) -> bool:
        """True if a collective may return before its results are there. Without `async_op` torch waits at once."""
        at = self.async_argument
        if at < 0:
            return self.asynchronous
        default = (kwargs or {}).get("async_op", (kwargs or {}).get("asyncOp", True))
        return bool(args[at] if at < len(args) else default)

    def flatten_written_arguments(self, args: Any, kwargs: Any) -> list[Any]:
        """The arguments it writes into, with lists of tensors flattened."""
        found: list[Any] = []
        for at, name in self.written_arguments:
            value: Any = args[at] if at < len(args) else (kwargs or {}).get(name)
            while type(value) in (list, tuple) and value and type(value[0]) in (list, tuple):
                value = [item for inner in value for item in inner]
            found.extend(value if type(value) in (list, tuple) else (value,))
        return found


def flatten_to_tensors_and_stable_values(items: Any, tensor_type: type, tensors: list[Any], others: list[Any]) -> None:
    """Split arguments into tensors and the rest, in order, through lists, tuples and dicts.

    What is neither a tensor nor a plain value counts by its type alone: its repr may hold an address. So does a path
    (`aten::from_file` takes one), which names no value: a temporary folder has another one in each run.
    """
    for item in items:
        if isinstance(item, tensor_type):
            tensors.append(item)
        elif type(item) in (list, tuple):
            others.append(len(item))
            flatten_to_tensors_and_stable_values(item, tensor_type, tensors, others)
        elif type(item) is dict:
            flatten_to_tensors_and_stable_values(item.values(), tensor_type, tensors, others)
        elif isinstance(item, _PLAIN):
            others.append("a path" if isinstance(item, str) and "/" in item else item)
        elif type(item).__module__.startswith("torch") and type(item).__name__ in _STABLE:
            others.append(str(item))
        else:
            others.append(type(item).__name__)
