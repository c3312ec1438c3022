"""The mode that computes in float64 and summarises what operators give. Imports torch.

In float64 the same program commits rounding errors that are 2**29 times smaller: what is left of a difference between
two runs then is not rounding. Random numbers are drawn in float32, as the program itself does, and then widened.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samerun.record.digests.torch_guards import PLAIN_TYPES, HiddenFromProgram, has_real_values, no_torch_function
from samerun.record.watching.stack_frames import find_user_line
from samerun.record.watching.torch_internals import (
    KeepsProgramsCompiledMixin,
    creates_meta_or_fake_tensor,
    find_operator_generator,
)
from samerun.record.watching.watched_operator import WatchedOperator, flatten_to_tensors_and_stable_values

WIDE = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}  # fmt: skip
NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}
EXACT_IN_FLOAT32 = ("aten::_amp_update_scale_",)
"""Operators that take float32 alone and whose values, powers of two, lose nothing there."""
DRAWS = (
    "bernoulli",
    "uniform",
    "normal",
    "rand",
    "exponential",
    "cauchy",
    "log_normal",
    "geometric",
    "multinomial",
    "poisson",
    "binomial",
    "_standard_gamma",
    "_sample_dirichlet",
    "rrelu_with_noise",
)
"""How operators that give random numbers begin; others of the random kind draw for a dropout inside."""
STRIDED = "aten::as_strided"
"""The view whose elements depend on how the memory lies, so that it may be wrong itself."""
UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_random_tag = torch.Tag.nondeterministic_seeded
_graph_task = torch._C._current_graph_task_id
_current_node = torch._C._current_autograd_node
_plain_call = torch._ops.OpOverload.__call__
Draw = Literal["none", "default generator", "own generator"]
"""Which generator an operator drew from: its device's, or one that the program made and gave it."""
Summarise = Callable[[WatchedOperator, list[Any], list[Any], Draw], None]
"""Called after an operator with its operands and its results, both as the program holds them, and whether it drew."""


INDEX_WRITES = ("aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class Float64Mode(KeepsProgramsCompiledMixin, TorchDispatchMode):
    """Computes in float64 if `widens`, and calls `summarise` after every operator while `is_summarising` says so.

    `narrow_operators`: how often an operator computed in single precision after all, by its name.
    """

    supports_higher_order_operators = True

    def __init__(self, widens: bool, operators: dict[Any, WatchedOperator], narrow_operators: dict[str, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.widens = widens
        self.operators = operators
        self.narrow_operators = narrow_operators
        self.summarise: Summarise | None = None
        self.is_summarising: Callable[[], bool] = lambda: True
        self.follow_views: Callable[[str, Any, Any], bool] = lambda name, base, views: False
        """Called with the name, the operand and the results of a view; whether it is summarised all the same."""
        self.note_overwriting: Callable[[], None] = lambda: None
        """Called where an operator writes into one element several times."""
        self.region_depth = 0
        """Greater than 0 in code that inductor generated: it knows the dtypes in memory, so they must be those."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        summarise = self.summarise if self.is_summarising() else None
        if summarise is None and not self.widens:
            return func(*args, **kwargs)
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # it calls operators on its local tensors: those are seen
        operator = self.operators.get(func)
        if operator is None:
            if getattr(func, "_schema", None) is None:
                return func(*args, **kwargs)
            operator = self.operators[func] = WatchedOperator(func, _random_tag, _plain_call)
        tensors: list[Any] = []
        flatten_to_tensors_and_stable_values(args, torch.Tensor, tensors, [])
        flatten_to_tensors_and_stable_values(kwargs.values(), torch.Tensor, tensors, [])
        with no_torch_function():
            if not all(type(t) in PLAIN_TYPES and has_real_values(t) for t in tensors) or (
                not tensors and creates_meta_or_fake_tensor(kwargs)
            ):
                made = func(*args, **kwargs)
                return widen_if_materialized_from_meta(made, tensors) if self.widens and not self.region_depth else made
            wide = self.widens and not self.region_depth
            before = take_generator_state(kwargs, tensors) if summarise is not None and operator.random else None
            out = self._call_with_float64_results(operator, args, kwargs, tensors) if wide else func(*args, **kwargs)
            if summarise is None or operator.allocates:
                return out
            name = func._schema.name
            is_plain_view = operator.silent and name != STRIDED
            if not is_plain_view or self.follow_views(name, tensors[0] if tensors else None, out):
                results = [t for t in operator.flatten_written_arguments(args, kwargs) if isinstance(t, torch.Tensor)]
                written = {id(t) for t in results}
                outs: list[Any] = []
                flatten_to_tensors_and_stable_values((out,), torch.Tensor, outs, [])
                # An attention that could drop out, and does not, draws nothing.
                drew: Draw = "none"
                if before is not None and before != take_generator_state(kwargs, tensors):
                    drew = "default generator" if kwargs.get("generator") is None else "own generator"
                if name in INDEX_WRITES and writes_an_element_twice(args, kwargs):
                    self.note_overwriting()
                summarise(operator, tensors, [*results, *(t for t in outs if id(t) not in written)], drew)
        return out

    def _call_with_float64_results(self, operator: WatchedOperator, args: Any, kwargs: Any, tensors: list[Any]) -> Any:
        func = operator.func
        if func._schema.name == "aten::lift_fresh":  # what torch.tensor made of Python's numbers
            made = func(*args, **kwargs)
            return made.to(WIDE[made.dtype]) if made.dtype in WIDE else made
        if operator.silent and not operator.name.startswith("aten._local_scalar"):
            return func(*args, **kwargs)  # a view shares memory, so that its dtype stays
        is_between_nodes = _graph_task() != -1 and _current_node() is None  # not in a forward pass that is recomputed
        if func._schema.name == "aten::_to_copy" and kwargs.get("dtype") in WIDE and is_between_nodes:
            # The gradient of a value that a compiled region or an array brought in: autograd insists on its dtype.
            self._count_single_precision_call(operator)
            return func(*args, **kwargs)
        if operator.random and func._schema.name == "aten::native_dropout":
            return self._drop_out_with_float32_drawn_mask(operator, *args, **kwargs)
        if operator.random and func._schema.name.removeprefix("aten::").startswith(DRAWS):
            if does_program_draw_in_float64(kwargs):
                return func(*args, **kwargs)
            return self._call_with_converted_dtypes_and_widen_results(NARROW, operator, args, kwargs)
        if func._schema.name == UNSCALE:
            return unscale_in_float64(*args)
        try:
            return self._call_with_converted_dtypes_and_widen_results(WIDE, operator, args, kwargs)
        except (RuntimeError, NotImplementedError):  # no such kernel; or it is the program's own mistake, seen again
            if func._schema.name not in EXACT_IN_FLOAT32:
                self._count_single_precision_call(operator)
            return self._call_with_converted_dtypes_and_widen_results(NARROW, operator, args, kwargs)

    def _drop_out_with_float32_drawn_mask(
        self, operator: WatchedOperator, value: Any, p: float, train: bool | None
    ) -> Any:
        """Draw the mask as float32 does, for the numbers drawn depend on the dtype, and apply it in float64."""
        _, mask = operator.func(torch.ones_like(value, dtype=torch.float32), p, train)
        return value * mask / (1 - p) if train is not False and p < 1 else value * mask, mask

    def _count_single_precision_call(self, operator: WatchedOperator) -> None:
        self.narrow_operators[operator.name] = self.narrow_operators.get(operator.name, 0) + 1

    def _call_with_converted_dtypes_and_widen_results(
        self, dtype_map: dict[Any, Any], operator: WatchedOperator, args: Any, kwargs: Any
    ) -> Any:
        """Call with operands of these dtypes; what comes back is wide, and what is written into is the program's."""
        originals: dict[int, Any] = {}
        converted: dict[int, Any] = {}

        def convert(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if value.dtype not in dtype_map:
                    return value
                if id(value) not in converted:
                    made = converted[id(value)] = value.detach().to(dtype_map[value.dtype])
                    originals[id(made)] = value
                return converted[id(value)]
            if isinstance(value, torch.dtype):
                return dtype_map.get(value, value)
            if type(value) in (list, tuple):
                return type(value)(convert(item) for item in value)
            return value

        new_args = tuple(convert(item) for item in args)
        new_kwargs = {name: convert(value) for name, value in kwargs.items()}
        with float64_by_default() if dtype_map is WIDE else nullcontext():
            out = operator.func(*new_args, **new_kwargs)
        for tensor in operator.flatten_written_arguments(new_args, new_kwargs):
            original = originals.get(id(tensor))
            if original is not None:
                original.copy_(tensor)
                # Where a tensor of float32 counts, as an optimizer does its steps, whole numbers lose nothing.
                if dtype_map is WIDE and not bool(((original == tensor) | (tensor != tensor)).all()):
                    self._count_single_precision_call(operator)

        def widen(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if id(value) in originals:
                    return originals[id(value)]
                return value.to(WIDE[value.dtype]) if value.dtype in WIDE and not is_operand(value) else value
            return type(value)(widen(item) for item in value) if type(value) in (list, tuple) else value

        operands: list[Any] = []
        flatten_to_tensors_and_stable_values((new_args, new_kwargs), torch.Tensor, operands, [])
        ids = {id(each) for each in operands}

        def is_operand(value: Any) -> bool:
            return id(value) in ids

        return widen(out)


def does_program_draw_in_float64(kwargs: Any) -> bool:
    """Whether random numbers are drawn in float64 without this mode too: by default, or because the line says so.

    The dtype of a tensor that the mode has widened, handed on by the program, looks the same otherwise.
    """
    if torch.get_default_dtype() is torch.float64:
        return True
    if kwargs.get("dtype") is not torch.float64:
        return False
    file, line, _ = find_user_line()
    text = ""
    for each in linecache.getlines(file)[line - 1 :] if line else ():
        text += each
        if text.count("(") <= text.count(")"):
            break
    return "float64" in text or "double" in text


@contextmanager
def float64_by_default() -> Iterator[None]:
    """What is made of whole numbers, or of none, has no operand to be widened: a quotient of counts, `linspace`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_tensor_of_python_numbers_wide(original: Any) -> Any:
    """`torch.tensor`, so that 0.1 in a list is the float64 number next to it, as a scalar 0.1 is."""

    def tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
        plain = not isinstance(data, torch.Tensor) and kwargs.get("dtype") is None
        if not plain or torch.compiler.is_compiling() or torch.get_default_dtype() is not torch.float32:
            return original(data, *args, **kwargs)
        with float64_by_default():
            return original(data, *args, **kwargs)

    return tensor


def widen_if_materialized_from_meta(made: Any, operands: list[Any]) -> Any:
    """Widen the memory that a model made on the meta device is moved to (`to_empty`): what is read into it is wide."""
    is_real = type(made) in PLAIN_TYPES and has_real_values(made) and made.dtype in WIDE
    return made.to(WIDE[made.dtype]) if is_real and operands and all(t.is_meta for t in operands) else made


def take_generator_state(kwargs: Any, tensors: list[Any]) -> bytes:
    """The state of the generator that a random operator draws from."""
    with HiddenFromProgram():
        return bytes(find_operator_generator(kwargs, tensors).get_state().numpy().tobytes())


def unscale_in_float64(gradients: Any, found_infinite: Any, inverse_scale: Any) -> None:
    """What GradScaler asks of `_amp_foreach_non_finite_check_and_unscale_`, whose kernel takes float32 alone."""
    for gradient in gradients:
        if not bool(torch.isfinite(gradient).all()):
            found_infinite.fill_(1.0)
        gradient.mul_(inverse_scale)


def writes_an_element_twice(args: Any, kwargs: Any) -> bool:
    """Whether index_put (`x[i] = y`) is given an index more than once: of several values only one stays."""
    indices, values = args[1], args[2]
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    given = [index for index in indices if index is not None]
    if accumulates or values.numel() < 2 or not given or any(t.dtype in (torch.bool, torch.uint8) for t in given):
        return False
    with HiddenFromProgram():
        shape: Any = torch.broadcast_shapes(*(index.shape for index in given))  # type: ignore[no-untyped-call]
        places = torch.stack([index.expand(shape).reshape(-1) for index in given])
        return bool(torch.unique(places, dim=1).shape[1] < places.shape[1])
