"""The error for an operator, type, device or layout that the table leaves out, and the program's line that it names."""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload

from samerun.numerics.aten_handlers import table
from samerun.numerics.aten_handlers.declare import NoPortableKernel, split_names

ALTERNATIVES = {
    "aten::linalg_eig": "Do it before the portable part, and keep the result in a file. Of symmetric matrices: eigh.",
}

WITHOUT_MEANING = frozenset(
    split_names("""
    all any as backward copy cross data dim ex for forward from functional impl in is like linalg linear loss native new
    no of on out reduce shape special tensor the to true unsafe with without
""")
)
"""Words of many names, which say little about what the operator computes."""

GENERAL_ADVICE = (
    "Write it with portable operators (sums, products, elementwise functions), or do it before the portable part."
)


def raise_no_kernel_unless_meta(tensor: Any) -> None:
    """Raise NoPortableKernel for a tensor whose type, layout or device the specification leaves out."""
    if tensor.is_meta:
        return
    if tensor.layout is not torch.strided:
        raise NoPortableKernel(
            f"a tensor of layout {_drop_torch_prefix(tensor.layout)}.", "Make it dense: tensor.to_dense()."
        )
    if tensor.is_complex():
        raise NoPortableKernel(
            f"a tensor of type {_drop_torch_prefix(tensor.dtype)}.",
            "Compute with real and imaginary parts (torch.view_as_real).",
        )
    if not tensor.is_cpu and not (tensor.is_cuda and torch.version.cuda):
        raise NoPortableKernel(
            f"a tensor on {tensor.device}.", "Portable kernels run on the CPU and on CUDA devices: tensor.cpu()."
        )
    raise NoPortableKernel(
        f"a tensor of type {_drop_torch_prefix(tensor.dtype)}.", "Convert it to float32 first: tensor.float()."
    )


def _keywords_of_operator_name(operator_name: str) -> frozenset[str]:
    """The words of an operator's name that say what it computes, without a number of dimensions."""
    words = (re.sub(r"\d+d?$", "", word) for word in operator_name.split("_"))
    return frozenset(word for word in words if len(word) > 2) - WITHOUT_MEANING


def find_similar_portable_operators(operator_name: str) -> list[str]:
    """Up to three portable operators that share a word with this one; those with most in common first.

    Names that only look alike say nothing of what is computed. Gradients and names with an underscore in front, which
    no program calls, are left out.
    """
    words = _keywords_of_operator_name(operator_name)
    ranked = []
    for candidate in sorted(table.portable_operator_names()):
        common = len(words & _keywords_of_operator_name(candidate))
        if common and not candidate.startswith("_") and not candidate.endswith("_backward"):
            ranked.append((-common, -difflib.SequenceMatcher(None, operator_name, candidate).ratio(), candidate))
    return [candidate for *_, candidate in sorted(ranked)[:3]]


class RefusalText(NamedTuple):
    """The arguments of a NotPortableError."""

    message: str
    hint: str


def explain_refusal(
    func: OpOverload | HigherOrderOperator, reason: NoPortableKernel, source_location: str
) -> RefusalText:
    full_name = func._name if isinstance(func, HigherOrderOperator) else func._schema.name
    name = full_name.removeprefix("aten::").rstrip("_")
    message = f"{source_location}: {func} has no portable kernel for {reason.reason}" if reason.reason else (
        f"{source_location}: {func} has no portable kernel."
    )  # fmt: skip
    hint = reason.hint or ALTERNATIVES.get(full_name)
    if hint is None:
        operators = find_similar_portable_operators(name)
        hint = f"The nearest portable operators: {', '.join(operators)}." if operators else GENERAL_ADVICE
    return RefusalText(
        message, hint + ' With portable(unsupported="warn") torch\'s own kernel runs, with the bits of this machine.'
    )


def _drop_torch_prefix(value: Any) -> str:
    return str(value).removeprefix("torch.")


_SAMERUN_FOLDER = str(Path(__file__).resolve().parents[2]) + os.sep


def find_source_location_outside_torch() -> str:
    """ "file:line" of the innermost frame that is neither torch's nor samerun's; the file relative if it can be."""
    torch = sys.modules.get("torch")
    skipped = [_SAMERUN_FOLDER, "<"]
    if torch is not None:
        skipped.append(str(Path(str(torch.__file__)).parent) + os.sep)
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(tuple(skipped)) and os.sep + "contextlib.py" not in name:
            return f"{_relative_if_below_cwd(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return "no line of Python"


def _relative_if_below_cwd(path: str) -> str:
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") else relative
