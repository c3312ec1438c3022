"""What is kept of tensors as numbers, and under which names. Imports torch."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch
from xxhash import xxh3_64_hexdigest

from samerun.record.config import KEPT_WHOLE, PIECES
from samerun.record.digests.digest import is_readable
from samerun.record.digests.torch_guards import HiddenFromProgram

STEPS_KEPT = 400
"""All steps up to this number, then every tenth, every hundredth, and so on."""
WRAPPERS = re.compile(r"(^|\.)(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?=\.|$)")
"""What data parallelism, compilation and checkpointing put into the names of parameters."""

CHANGED_BY_STEPPING = frozenset(
    ("last_epoch", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i", "_step_count", "_last_lr")
)
"""Attributes of learning-rate schedulers that are no settings."""


def strip_wrapper_names(name: str) -> str:
    """A parameter's name without what wrappers of the model put into it."""
    return WRAPPERS.sub("", name).lstrip(".")


def name_class_without_wrappers(model: Any) -> str:
    """The class of the model that torch's wrappers (compilation, data parallelism) hold, or of the model itself."""
    while type(model).__module__.startswith("torch."):
        inner = [model._modules[name] for name in ("_orig_mod", "module") if model._modules.get(name) is not None]
        if not inner:
            break
        model = inner[0]
    return type(model).__name__


def read_optimizer_group_numbers_as_hex(optimizer: Any) -> dict[str, str]:
    """The numbers that an optimizer computes with, as hexadecimal floats: learning rate, momentum and the like."""
    found = {}
    for at, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            values = value if type(value) is tuple else (value,)
            for part, each in enumerate(values):
                if isinstance(each, torch.Tensor) and each.numel() == 1:
                    each = float(each)
                if type(each) in (int, float):
                    found[f"{name}[{part}]" if type(value) is tuple else name, at] = float(each).hex()
    single = len(optimizer.param_groups) == 1
    return {name if single else f"{name} of group {at}": value for (name, at), value in found.items()}


def read_scheduler_settings(scheduler: Any) -> dict[str, str]:
    """What a learning-rate scheduler was made with: its class, and its numbers that stepping does not change."""
    found = {"class": type(scheduler).__name__}
    settings = {**vars(scheduler), **read_closures(vars(scheduler).get("lr_lambdas", ()))}
    for name, value in settings.items():
        numbers = value if type(value) in (list, tuple) else sorted(value) if type(value) is Counter else (value,)
        if name not in CHANGED_BY_STEPPING and numbers and all(type(each) in (int, float) for each in numbers):
            found[name] = " ".join(f"{each:.9g}" for each in numbers)
    return found


def read_closures(functions: Any) -> dict[str, Any]:
    """The variables that functions close over, by name: what the lambdas of a scheduler compute with."""
    found: dict[str, Any] = {}
    for function in functions:
        code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
        if code is not None and cells is not None:
            found.update({name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)})
    return found


def storage_key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata) if is_readable(tensor) else -id(tensor)


def geometry_key(tensor: Any) -> tuple[Any, ...]:
    """The memory of a tensor, and where in it each element lies."""
    if not is_readable(tensor):
        return (storage_key(tensor),)
    return storage_key(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def is_kept_with_tenfold_thinning(number: int, all_up_to: int) -> bool:
    every = 1
    while number > all_up_to * every:
        every *= 10
    return number % every == 0


def is_floating_or_complex(tensor: Any) -> bool:
    """Whether the elements are floating or complex numbers."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def flatten_to_float64(tensor: Any) -> Any:
    """The elements in the order of their indices; of complex ones both parts, one after the other."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return plain.to(torch.float64).reshape(-1)


def take_all_or_sampled_numbers(tensor: Any) -> list[float]:
    """All elements of a small tensor; of a large one a sample and sums that cover it. In the order of its indices."""
    with HiddenFromProgram():
        flat = flatten_to_float64(tensor)
        count = flat.numel()
        if count <= KEPT_WHOLE:
            return list(flat.tolist())
        size = count // PIECES
        sums = flat[: size * PIECES].view(PIECES, size).sum(1)
        rest = flat[size * PIECES :].sum().reshape(1)
        return list(torch.cat([flat[:: -(-count // PIECES)], sums, rest]).tolist())


_weights: dict[int, Any] = {}


def summarise_as_count_and_four_sums(tensor: Any) -> list[float]:
    """Count, sum, sum of magnitudes, sum of squares, and a weighted sum, which depends on the order."""
    flat = flatten_to_float64(tensor)
    count = flat.numel()
    weights = _weights.get(count)
    if weights is None or weights.device != flat.device:
        if len(_weights) > 64:
            _weights.clear()
        weights = _weights[count] = (
            torch.arange(count, dtype=torch.float64, device=flat.device) * 0.6180339887 % 1 + 0.5
        )
    parts = torch.stack([flat.sum(), flat.abs().sum(), (flat * flat).sum(), (flat * weights).sum()])
    return [float(count), *parts.tolist()]


def digest_generator_states() -> str:
    """Of torch's own generators: where two runs have the same, both have drawn as many numbers."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += torch.cuda.get_rng_state_all()
    return xxh3_64_hexdigest(b"".join(state.numpy().tobytes() for state in states))


def name_dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
