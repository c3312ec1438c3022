"""Steps of a training whose optimizer the program has written itself, for `check --neutral`. Imports torch.

torch's optimizers say when they step. Where there is none, parameters that hold other values when a model is called
next, or at the end, tell that a step was made. `p.data` and views write past a tensor's version: values are compared.
"""

from __future__ import annotations

import weakref
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digests.digest import is_readable
from samerun.record.digests.state_digests import named_parameters
from samerun.record.digests.torch_guards import no_torch_function
from samerun.record.trace import format as f
from samerun.record.watching.model_values import ModelValues, digest_sample
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.step_digests import StepDigester
from samerun.record.watching.tensor_numbers import is_floating_or_complex


class HandWrittenOptimizer:
    """What recorders of steps read of an optimizer, for the parameters that a program writes into itself."""

    def __init__(self, parameters: list[Any]) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters}]
        self.state: dict[Any, Any] = {}


class HandWrittenSteps:
    """Finds the steps of one process that no optimizer of torch makes."""

    def __init__(self, recorder: Recorder, models: ModelValues) -> None:
        self.recorder, self.models = recorder, models
        self._samples: dict[int, tuple[Any, bytes]] = {}
        """Of each parameter, by id: a weak reference, and the digest of a sample of it at the last look."""
        self._digester: StepDigester | None = None

    def find_step(self) -> HandWrittenOptimizer | None:
        """The parameters of the called models, if one of them has changed since the last call; None otherwise."""
        parameters = {
            id(p): p for model in self.models.list_called_models() for _, p in named_parameters(model)
            if p.requires_grad and is_readable(p) and is_floating_or_complex(p) and p.numel()
        }  # fmt: skip
        changed = False
        for key, p in parameters.items():
            known, digest = self._samples.get(key), digest_sample(p)
            if known is not None and known[0]() is p:
                changed = changed or known[1] != digest
            self._samples[key] = weakref.ref(p), digest
        return HandWrittenOptimizer(list(parameters.values())) if changed else None

    def sample_again(self, step: HandWrittenOptimizer) -> None:
        """After something was written into the parameters that the program has not written."""
        for p in step.param_groups[0]["params"]:
            self._samples[id(p)] = weakref.ref(p), digest_sample(p)

    def emit_step(self, step: HandWrittenOptimizer, *, at_end: bool) -> None:
        """Write the step into the trace, without gradients: nobody knows when the program has used them."""
        with no_torch_function():
            self._digester = self._digester or StepDigester(self.recorder)
            leaves = [leaf for leaf in self._digester.digest_step_leaves(step) if leaf[0] != "grads"]
        self.recorder.emit_leaf_events(leaves, 0)
        digest = xxh3_128_digest(b"".join(value for _, value in leaves))
        if at_end:  # nothing is left to be cut off
            self.recorder.step += 1
            self.recorder.emit(f.STEP, inputs=self.recorder.step, outputs=digest, phase=f.BETWEEN)
        else:
            self.recorder.emit_step_and_exit_if_due(digest)
