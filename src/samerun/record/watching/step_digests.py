"""What a training holds after an optimizer step, as a few digests. Imports torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from xxhash import xxh3_128_digest

from samerun.record.digests.digest import digest_contiguous_cpu_tensor
from samerun.record.digests.state_digests import (
    make_numpy_random_state_digester,
    make_python_random_state_digester,
    named_buffers,
)
from samerun.record.trace import format as f
from samerun.record.watching.quick_mode import choose_digest_function, choose_digest_list_function
from samerun.record.watching.recorder import NOTHING, Recorder

Leaf = tuple[str, bytes]
SCALARS = frozenset((type(None), bool, int, float, str))
PLAIN = (type(None), bool, int, float, str, tuple)
SCALARS_KEPT = 4096


def flag_parameters_on_device(optimizer: Any) -> int:
    """The flag of a step's leaves: whether a parameter of the optimizer, and so its digest, is of a device."""
    on_device = any(not p.is_cpu for group in optimizer.param_groups for p in group["params"])
    return f.ON_DEVICE if on_device else 0


class StepDigester:
    """Digests one recorder's steps. It keeps what a small model's step has no time to look up again."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.digest = choose_digest_function()
        self.digest_of_element_digests = choose_digest_list_function()
        self.scalar_digests: dict[tuple[type, Any], bytes] = {}
        self.python_state: tuple[Any, Callable[[], bytes]] = None, bytes
        self.numpy_state: tuple[Any, Callable[[], bytes]] = None, bytes

    def digest_step_leaves(self, optimizer: Any) -> list[Leaf]:
        """(name, digest) of every leaf of a step, in a fixed order."""
        digest_of_element_digests = self.digest_of_element_digests
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        states = [value for p in parameters for value in (optimizer.state.get(p) or {}).values()]
        settings = [value for group in optimizer.param_groups for key, value in group.items() if key != "params"]
        return [
            ("params", digest_of_element_digests(parameters, self.digest)),
            ("grads", digest_of_element_digests([p.grad for p in parameters], self.digest_gradient)),
            ("buffers", digest_of_element_digests(self.collect_buffers_of_live_models_of_thread(), self.digest)),
            ("optimizer", digest_of_element_digests(states + settings, self.digest_optimizer_value)),
            ("loss", self.recorder.thread.last_loss),
            ("batch", self.recorder.last_batch),
            *self.digest_rng_states(),
        ]

    def collect_buffers_of_live_models_of_thread(self) -> list[Any]:
        """The buffers of every model that this thread was the first to call, and that is still alive.

        Those of other threads change beside this one.
        """
        recorder, thread = self.recorder, max(0, self.recorder.thread.number)
        models = list(recorder.root_models.items())
        roots = [ref() for identity, ref in models if recorder.thread_of_root_model.get(identity, 0) == thread]
        return [buffer for root in roots if root is not None for _, buffer in named_buffers(root)]

    def digest_gradient(self, gradient: Any) -> bytes:
        return NOTHING if gradient is None else self.digest(gradient)

    def digest_optimizer_value(self, value: Any) -> bytes:
        """Digest of a tensor, a number, a text or a tuple; other objects do not count: they may print an address."""
        kind = type(value)
        if kind not in SCALARS or value == 0:  # 0.0 equals -0.0, which prints otherwise
            if isinstance(value, torch.Tensor):
                return self.digest(value)
            return xxh3_128_digest(repr(value).encode()) if isinstance(value, PLAIN) else NOTHING
        known = self.scalar_digests.get((kind, value))
        if known is None:
            if len(self.scalar_digests) >= SCALARS_KEPT:  # a learning rate that changes with every step
                self.scalar_digests.clear()
            known = self.scalar_digests[kind, value] = xxh3_128_digest(repr(value).encode())
        return known

    def digest_rng_states(self) -> Iterator[Leaf]:
        """The states of torch's generators, NumPy's and Python's: a leaf each."""
        states = [digest_contiguous_cpu_tensor(torch.get_rng_state(), 0)]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states += [digest_contiguous_cpu_tensor(value, 0) for value in torch.cuda.get_rng_state_all()]
        yield "rng", xxh3_128_digest(b"".join(states))
        numpy_random: Any = sys.modules.get("numpy.random")
        if numpy_random is not None:
            if self.numpy_state[0] is not numpy_random:
                self.numpy_state = numpy_random, make_numpy_random_state_digester(numpy_random)
            yield "rng.numpy", self.numpy_state[1]()
        python: Any = sys.modules.get("random")
        if python is not None:
            if self.python_state[0] is not python:
                self.python_state = python, make_python_random_state_digester(python)
            yield "rng.python", self.python_state[1]()
