"""Steps of a training whose optimizer the program has written itself, for `check --neutral`. Imports torch.

torch's optimizers say when they step. Where there is none, parameters that hold other values when a model is called
next, or at the end, tell that a step was made. `p.data` and views write past a tensor's version: values are compared.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch

from samerun.record.watching.recorder import Recorder
from samerun.record.watching.run_numbers.model_values import (
    ModelValues,
    can_be_sampled,
    digest_sample,
    list_named_parameters,
)
from samerun.record.watching.step_digests import StepDigester, flag_parameters_on_device


class HandWrittenOptimizer:
    """What recorders of steps read of an optimizer, for the parameters that a program writes into itself."""

    def __init__(self, parameters: list[Any]) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters}]
        self.state: dict[Any, Any] = {}


class ModelSample(NamedTuple):
    """What the trained parameters of a model were when it was last looked at, as digests by name."""

    model: weakref.ref[Any]
    digests: dict[str, bytes]
    has_stand_ins: bool
    """Whether other tensors stood in for its parameters, as `functional_call` arranges it for a call."""


class HandWrittenSteps:
    """Finds the steps of one process that no optimizer of torch makes. Call its methods inside `no_torch_function`."""

    def __init__(self, recorder: Recorder, models: ModelValues) -> None:
        self.recorder, self.models = recorder, models
        self._samples: dict[int, ModelSample] = {}
        """By the model's id."""
        self._last_trained_model: Any = None
        self._digester: StepDigester | None = None

    def keep_until_next_call(self, model: Any) -> None:
        """Keep a model that is being called: a function that trains it frees it with what its last step wrote."""
        if torch.is_grad_enabled():
            self._last_trained_model = model

    def find_step(self, *, at_end: bool) -> HandWrittenOptimizer | None:
        """The trained parameters of the called models, if one of them has changed since the last call; None otherwise.

        at_end: no model is being called, so that no tensors stand in for parameters.
        """
        parameters: dict[int, Any] = {}
        changed = False
        for model in self.models.list_called_models():
            trained = {name: p for name, p in list_named_parameters(model) if is_trainable_or_stand_in(p)}
            known = self._samples.get(id(model))
            if not trained or (at_end and known is not None and known.has_stand_ins):
                continue
            digests = {name: digest_sample(p) for name, p in trained.items()}
            if known is not None and known.model() is model:
                changed = changed or any(known.digests.get(name, one) != one for name, one in digests.items())
            has_stand_ins = not all(isinstance(p, torch.nn.Parameter) for p in trained.values())
            self._samples[id(model)] = ModelSample(weakref.ref(model), digests, has_stand_ins)
            parameters.update({id(p): p for p in trained.values()})
        return HandWrittenOptimizer(list(parameters.values())) if changed else None

    def sample_again(self) -> None:
        """After something was written into the parameters that the program has not written."""
        self.find_step(at_end=False)

    def emit_step(self, step: HandWrittenOptimizer, *, at_end: bool) -> None:
        """Write the step into the trace, without gradients: nobody knows when the program has used them."""
        self._digester = self._digester or StepDigester(self.recorder)
        leaves = [leaf for leaf in self._digester.digest_step_leaves(step) if leaf[0] != "grads"]
        # At the end nothing is left to be cut off.
        emit = self.recorder.emit_step if at_end else self.recorder.emit_step_and_exit_if_due
        emit(leaves, flag_parameters_on_device(step))


def is_trainable_or_stand_in(parameter: Any) -> bool:
    """Whether a member of a model is a parameter that a training writes into, or stands in for one, and can be read."""
    is_candidate = parameter.requires_grad or not isinstance(parameter, torch.nn.Parameter)
    return bool(is_candidate and can_be_sampled(parameter))
