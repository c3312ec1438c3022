"""samerun: run a PyTorch program again and get the same bits, or learn where, why and what to change.

The names below are loaded when they are first used; `import samerun` imports neither torch nor NumPy.
"""

# Nothing is imported here that Python has not loaded by itself: with `python -m samerun` this file is read while the
# working directory, which may be a stranger's, stands first on the path.
import sys

__version__ = "0.1.0"

if sys.version_info < (3, 10):  # noqa: UP036 - pip refuses to install it there; a folder on PYTHONPATH does not
    raise ImportError(f"samerun {__version__} needs Python 3.10 or later; this is Python {sys.version.split()[0]}")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from samerun import data
    from samerun.base.errors import (
        CheckpointError,
        DataError,
        NotPortableError,
        NotPortableWarning,
        SamerunError,
        SeedError,
        StepNotRepeatableError,
        SwitchError,
        TooLateError,
        UnseededError,
        WrongResultError,
        WrongResultWarning,
    )
    from samerun.batch_invariance import batch_invariant
    from samerun.control.ddp import ddp_comm_hook
    from samerun.control.determinism.mode import deterministic
    from samerun.control.fsdp import clip_grad_norm_, fsdp_comm_hook
    from samerun.control.rng.activation_checkpoint import checkpoint_sequential
    from samerun.control.rng.isolation import fixed_rng, isolate_rng
    from samerun.control.rng.seeding import register_rng, seed_everything, unregister_rng
    from samerun.control.rng.state import get_rng_state, load_state_dict, set_rng_state, state_dict
    from samerun.control.streams.stream import stream
    from samerun.control.tensor_parallel import tp_comm_hook
    from samerun.data.checkpoint import checkpoint
    from samerun.numerics.dispatch.portable import portable
    from samerun.numerics.verification.portable_equal import portable_equal
    from samerun.receipt_block import receipt
    from samerun.record.watching.start import mark
    from samerun.step_guard import guard

_WHERE = {
    "CheckpointError": "samerun.base.errors",
    "DataError": "samerun.base.errors",
    "NotPortableError": "samerun.base.errors",
    "NotPortableWarning": "samerun.base.errors",
    "SamerunError": "samerun.base.errors",
    "SeedError": "samerun.base.errors",
    "StepNotRepeatableError": "samerun.base.errors",
    "SwitchError": "samerun.base.errors",
    "TooLateError": "samerun.base.errors",
    "UnseededError": "samerun.base.errors",
    "WrongResultError": "samerun.base.errors",
    "WrongResultWarning": "samerun.base.errors",
    "batch_invariant": "samerun.batch_invariance",
    "checkpoint": "samerun.data.checkpoint",
    "checkpoint_sequential": "samerun.control.rng.activation_checkpoint",
    "clip_grad_norm_": "samerun.control.fsdp",
    "ddp_comm_hook": "samerun.control.ddp",
    "deterministic": "samerun.control.determinism.mode",
    "fixed_rng": "samerun.control.rng.isolation",
    "fsdp_comm_hook": "samerun.control.fsdp",
    "get_rng_state": "samerun.control.rng.state",
    "guard": "samerun.step_guard",
    "isolate_rng": "samerun.control.rng.isolation",
    "load_ipython_extension": "samerun.adapters.notebook",
    "load_state_dict": "samerun.control.rng.state",
    "mark": "samerun.record.watching.start",
    "portable": "samerun.numerics.dispatch.portable",
    "portable_equal": "samerun.numerics.verification.portable_equal",
    "receipt": "samerun.receipt_block",
    "register_rng": "samerun.control.rng.seeding",
    "seed_everything": "samerun.control.rng.seeding",
    "set_rng_state": "samerun.control.rng.state",
    "state_dict": "samerun.control.rng.state",
    "stream": "samerun.control.streams.stream",
    "tp_comm_hook": "samerun.control.tensor_parallel",
    "unregister_rng": "samerun.control.rng.seeding",
}

_ROOMS = frozenset({"data"})
"""Public as modules."""

__all__ = [
    "CheckpointError",
    "DataError",
    "NotPortableError",
    "NotPortableWarning",
    "SamerunError",
    "SeedError",
    "StepNotRepeatableError",
    "SwitchError",
    "TooLateError",
    "UnseededError",
    "WrongResultError",
    "WrongResultWarning",
    "__version__",
    "batch_invariant",
    "checkpoint",
    "checkpoint_sequential",
    "clip_grad_norm_",
    "data",
    "ddp_comm_hook",
    "deterministic",
    "fixed_rng",
    "fsdp_comm_hook",
    "get_rng_state",
    "guard",
    "isolate_rng",
    "load_state_dict",
    "mark",
    "portable",
    "portable_equal",
    "receipt",
    "register_rng",
    "seed_everything",
    "set_rng_state",
    "state_dict",
    "stream",
    "tp_comm_hook",
    "unregister_rng",
]


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"samerun.{name}")
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'samerun' has no attribute {name!r}")
    if module != "samerun.base.errors":
        import_module("samerun.base.versions").require_supported_torch_and_numpy()
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
