"""What is said when an operator, type, device or layout is outside the table."""

from __future__ import annotations

import difflib
import re
from typing import Any

import torch

from samerun.numerics.operators import table
from samerun.numerics.operators.declare import NotInTable, words

NEAREST = {
    "aten::_fft_r2c": "A product with a matrix of cosines and sines (torch.mm) is portable.",
    "aten::_linalg_svd": "Do it before the portable part, and keep the result in a file.",
    "aten::linalg_cholesky_ex": "Do it before the portable part, and keep the result in a file.",
    "aten::linalg_matrix_exp": "Do it before the portable part, and keep the result in a file.",
    "aten::linalg_inv_ex": "q, r = torch.linalg.qr(a); torch.linalg.solve_triangular(r, q.mT, upper=True) is portable.",
    "aten::_linalg_solve_ex": (
        "q, r = torch.linalg.qr(a); torch.linalg.solve_triangular(r, q.mT @ b, upper=True) is portable."
    ),
    "aten::linalg_lstsq": (
        "q, r = torch.linalg.qr(a); torch.linalg.solve_triangular(r, q.mT @ b, upper=True) is portable."
    ),
}

WITHOUT_MEANING = frozenset(
    words("""
    all any as backward copy cross data dim ex for forward from functional impl in is like linalg linear loss native new
    no of on out reduce shape special tensor the to true unsafe with without
""")
)
"""Words of many names, which say little about what the operator computes."""

ELSE = "Write it with portable operators (sums, products, elementwise functions), or do it before the portable part."


def refuse_tensor(tensor: Any) -> None:
    """Raise NotInTable for a tensor whose type, layout or device the specification leaves out."""
    if tensor.is_meta:
        return
    if tensor.layout is not torch.strided:
        raise NotInTable(f"a tensor of layout {_short(tensor.layout)}.", "Make it dense: tensor.to_dense().")
    if tensor.is_complex():
        raise NotInTable(
            f"a tensor of type {_short(tensor.dtype)}.", "Compute with real and imaginary parts (torch.view_as_real)."
        )
    if not tensor.is_cpu and not (tensor.is_cuda and torch.version.cuda):
        raise NotInTable(
            f"a tensor on {tensor.device}.", "Portable kernels run on the CPU and on CUDA devices: tensor.cpu()."
        )
    raise NotInTable(f"a tensor of type {_short(tensor.dtype)}.", "Convert it to float32 first: tensor.float().")


def _meaning(name: str) -> frozenset[str]:
    """The words of an operator's name that say what it computes, without a number of dimensions."""
    found = (re.sub(r"\d+d?$", "", word) for word in name.split("_"))
    return frozenset(word for word in found if len(word) > 2) - WITHOUT_MEANING


def nearest(name: str) -> list[str]:
    """Up to three portable operators that share a word with this one; those with most in common first.

    Names that only look alike say nothing of what is computed. Gradients and names with an underscore in front, which
    no program calls, are left out.
    """
    wanted = _meaning(name)
    found = []
    for other in sorted(table.names()):
        common = len(wanted & _meaning(other))
        if common and not other.startswith("_") and not other.endswith("_backward"):
            found.append((-common, -difflib.SequenceMatcher(None, name, other).ratio(), other))
    return [other for *_, other in sorted(found)[:3]]


def refused(func: Any, reason: NotInTable, line: str) -> tuple[str, str]:
    """The message and the hint of a NotPortableError."""
    name = func._schema.name.removeprefix("aten::").rstrip("_")
    message = f"{line}: {func} has no portable kernel for {reason.reason}" if reason.reason else (
        f"{line}: {func} has no portable kernel."
    )  # fmt: skip
    hint = reason.hint or NEAREST.get(func._schema.name)
    if hint is None:
        near = nearest(name)
        hint = f"The nearest portable operators: {', '.join(near)}." if near else ELSE
    return message, hint + ' With portable(unsupported="warn") torch\'s own kernel runs, with the bits of this machine.'


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.")
