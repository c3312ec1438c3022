"""What torch refuses, a portable kernel refuses with torch's own error, before it reads or writes any memory.

Before an operator runs with shapes and types that it has not seen, torch's own meta function looks at them, once for
each signature. Values (indices, targets, probabilities), and shapes that a meta function lets pass, are checked by the
operator's family. Whatever error that gives, the one that reaches the program is the one of torch's own kernel.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree
from torch.utils._python_dispatch import _disable_current_modes

from samerun.base.errors import SamerunError
from samerun.base.user_code import SAMERUN_FOLDER
from samerun.numerics.aten_handlers.declare import NoPortableKernel
from samerun.numerics.kernels.tensors import copy_tensors_in_pytree

Runner = Callable[[Any, Any, Any, Any], Any]
"""(mode, operator, args, kwargs) -> what the operator gives."""

_OWN_ERROR_PACKAGES = {*sys.stdlib_module_names, "torch", "numpy", "samerun"}
_OWN_FOLDERS = (
    *("<", os.path.dirname(os.__file__) + os.sep, SAMERUN_FOLDER),
    *(os.path.dirname(str(package.__file__)) + os.sep for package in (torch, numpy)),
)

MOST_ACCEPTED_KEYS = 4096
"""Of one operator. A program whose shapes never come again must not gather them all."""

CRASHING_PREFIXES = (
    *("_fused_", "native_batch_norm", "_native_batch_norm", "_weight_norm_interface", "_embedding_bag"),
    *("rrelu_with_noise",),
)
"""Beginnings of names of operators whose own kernels in torch read wild memory where arguments do not fit. Gradients
do too: torch calls them itself, with what the forward pass left. None of these is asked for its words.
"""


def make_shape_and_dtype_key(values: Iterable[Any]) -> tuple[Any, ...]:
    """All that a meta function looks at, but for strides."""
    key: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            key.append(value.shape)
            key.append(value.dtype)
        elif type(value) is list or type(value) is tuple:
            key.append(make_shape_and_dtype_key(value))
        else:
            key.append(value)
    return tuple(key)


class AcceptedShapesAndDtypes:
    """The signatures of one operator that torch has accepted."""

    def __init__(self) -> None:
        self._keys: set[tuple[Any, ...]] = set()

    def ask_torch_if_new_and_raise_refusal(self, func: OpOverload, args: Any, kwargs: Any) -> None:
        """Raise torch's error if it refuses these arguments; ask it only for a signature that is new."""
        key = make_shape_and_dtype_key(args)
        if kwargs:
            key = (*key, *kwargs, make_shape_and_dtype_key(kwargs.values()))
        if key not in self._keys:
            with _disable_current_modes():  # none of them must see what is only asked
                raise_if_torch_refuses(func, args, kwargs)
            if len(self._keys) >= MOST_ACCEPTED_KEYS:
                self._keys.clear()
            self._keys.add(key)


def with_meta_function_check(run: Runner) -> Runner:
    """`run`, with every new signature shown to torch's meta function first."""
    accepted = AcceptedShapesAndDtypes()

    def run_checked(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        accepted.ask_torch_if_new_and_raise_refusal(func, args, kwargs)
        return run(mode, func, args, kwargs)

    return run_checked


def raise_if_torch_refuses(func: OpOverload, args: Any, kwargs: Any) -> None:
    """Raise torch's error where its meta function refuses these shapes and types, and its kernel too.

    Meta functions know little of types: randn(dtype=torch.int64), softmax of int8 and grids of another type than the
    image pass them. So with types like these torch's kernel is asked, once for each signature.
    """
    try:
        func(*_to_meta(args), **_to_meta({**kwargs, "device": "meta"} if "device" in kwargs else kwargs))
    except NotImplementedError:
        pass  # it has none, or it needs values
    except TypeError as error:
        if not _meta_function_was_not_entered(error):
            raise_torch_error_unless_accepted(func, args, kwargs, error)
    except Exception as error:
        raise_torch_error_unless_accepted(func, args, kwargs, error)
    if _is_first_non_floating_or_mixed(args, kwargs) and _torch_kernel_can_be_asked(func):
        _run_torch_kernel_on_copies(func, args, kwargs)


def _is_first_non_floating_or_mixed(args: Any, kwargs: Any) -> bool:
    """Whether the first tensor or a new tensor does not hold floating-point numbers, or two tensors hold different
    ones."""
    tensors = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    dtype = kwargs.get("dtype")
    if dtype is not None and not dtype.is_floating_point:
        return True
    floating = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return len(floating) > 1 or (bool(tensors) and not tensors[0].is_floating_point())


def _meta_function_was_not_entered(error: TypeError) -> bool:
    """Whether a meta function was never entered: some of torch's do not take all that their operators take."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == torch._ops.__file__


def raise_torch_error_unless_accepted(func: OpOverload, args: Any, kwargs: Any, fallback_error: Exception) -> None:
    """Raise what torch's own kernel raises, in place of the error that a check or a handler raised.

    Returns where torch accepts the arguments. The program's tensors and generators stay as they are.
    """
    if isinstance(fallback_error, (SamerunError, NoPortableKernel, Warning, MemoryError, torch.OutOfMemoryError)):
        raise fallback_error
    if _interrupted_the_kernel(fallback_error):
        raise fallback_error
    if not _torch_kernel_can_be_asked(func):
        raise fallback_error
    try:
        _run_torch_kernel_on_copies(func, args, kwargs)
    except Exception as torch_error:
        raise torch_error from None


def _interrupted_the_kernel(error: Exception) -> bool:
    """Whether the error came in from outside: a time limit or a preemption that a signal's handler turns into an
    exception, or one that another thread has set. It says nothing about the operator, and its receiver waits for it.
    """
    frame_files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    origin = type(error).__module__.partition(".")[0]
    return origin not in _OWN_ERROR_PACKAGES or not all(file.startswith(_OWN_FOLDERS) for file in frame_files[-1:])


def _torch_kernel_can_be_asked(func: OpOverload) -> bool:
    name = func._schema.name
    return name.startswith("aten::") and not torch_kernel_may_crash(name.removeprefix("aten::"))


def _run_torch_kernel_on_copies(func: OpOverload, args: Any, kwargs: Any) -> None:
    args, kwargs = copy_tensors_in_pytree((args, kwargs)) if func._schema.is_mutable else (args, kwargs)
    with (
        _disable_current_modes(),
        _fork_rng_with_cloned_generator_args(func, args, kwargs) as (args, kwargs),
        torch.no_grad(),
    ):
        func(*args, **kwargs)


def torch_kernel_may_crash(operator_name: str) -> bool:
    """Whether torch's own kernel may read wild memory where it should refuse."""
    return operator_name.startswith(CRASHING_PREFIXES) or "_backward" in operator_name


def _to_meta(values: Any) -> Any:
    def tensor_to_meta(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    return _pytree.tree_map(tensor_to_meta, values)


@contextmanager
def _fork_rng_with_cloned_generator_args(func: OpOverload, args: Any, kwargs: Any) -> Iterator[Any]:
    """The arguments with generators copied; torch's own generators stand afterwards where they stood."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        yield args, kwargs
        return
    leaves = _pytree.tree_leaves((args, kwargs))
    devices = {leaf.device.index for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices)):
        yield _pytree.tree_map_only(torch.Generator, torch.Generator.clone_state, (args, kwargs))
