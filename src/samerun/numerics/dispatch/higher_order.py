"""Operators that take functions (`flex_attention`, `cond`, `scan`), inside `portable()`: those that are Python code of
torch run as that code, whose operators come back to the mode one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C import DispatchKey
from torch._ops import HigherOrderOperator

from samerun.numerics.aten_handlers.declare import NoPortableKernel, split_names

RUN_AS_OPERATORS = frozenset(
    split_names("""
    associative_scan flex_attention flex_attention_backward out_dtype while_loop while_loop_stack_output
""")
)
"""Those whose CompositeExplicitAutograd kernel calls operators and the functions it is given, and nothing else. (Others
start machine code, of Triton or of torch's compiler, or draw from a generator in a state of their own.)"""
ONLY_MOVE_VALUES = frozenset(split_names("cond scan"))
"""Those whose kernel takes no mode, but moves values only, from and to the functions that it is given."""


def run_higher_order_operator(mode: Any, func: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    """What `func` returns for operators with the bits of the specification. Raises NoPortableKernel for one that runs
    anything but operators.
    """
    kernel = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    if kernel is not None and func._name in RUN_AS_OPERATORS:
        with mode:  # torch takes the mode off while it handles an operator
            return kernel(*args, **kwargs)
    if kernel is not None and func._name in ONLY_MOVE_VALUES:
        return kernel(*(_call_inside(mode, each) if callable(each) else each for each in args), **kwargs)
    raise NoPortableKernel(
        "code that torch runs as a whole.", "Call the function that it is given as plain Python code."
    )


def _call_inside(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with mode:
            return function(*args)

    return call
