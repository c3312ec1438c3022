"""`samerun.portable_equal()`, the public name. The work stands in `equality.py`, which imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samerun.base.errors import SamerunError

if TYPE_CHECKING:
    from samerun.numerics.verification.equality import Equality


def portable_equal(
    model: Callable[..., Any],
    inputs: Any,
    *,
    loss: Callable[[Any], Any] | None = None,
    batch: int | None = None,
) -> Equality:
    """Find out which operators of a model change their bits in plain torch, and whether portable ones exist for all.

        print(samerun.portable_equal(model, x))

    Args:
        model: an nn.Module or another callable. A module is copied: its gradients and buffers stay as they are.
        inputs: one tensor or a tuple of arguments, on the CPU; batches along dimension 0. They are not changed.
        loss: what makes one number of the model's result, for the backward pass; the sum of all floating results
            if it is left out. Where that takes no gradient, there is no backward pass.
        batch: the size of the smaller batch; half of the inputs' if it is left out.

    Returns:
        An `Equality`: `operators`, `changing`, `portable`, and a table as `str`.

    Raises:
        SamerunError: for inputs without a tensor or on another device, or a batch that is not smaller; if the
            process with other instructions fails. Whatever the model raises.
    """
    try:
        from samerun.numerics.verification.equality import examine_bit_equality
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SamerunError("portable_equal(): torch is not installed.", "pip install torch") from None
    return examine_bit_equality(model, inputs, loss, batch)
