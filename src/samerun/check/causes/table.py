"""Every kind of cause, in the order in which equally good suspects are tried."""

from __future__ import annotations

from samerun.check.causes import (
    concurrency,
    entropy_and_time,
    execution_settings,
    external_inputs,
    extra_draw,
    fallbacks,
    iteration_order,
    loader_workers,
    nondeterministic_operator,
    resume,
    uninitialised_memory,
    unseeded_generators,
)
from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect

CAUSES: tuple[Cause, ...] = (
    unseeded_generators.UNSEEDED_PYTHON,
    unseeded_generators.UNSEEDED_NUMPY_GLOBAL,
    unseeded_generators.UNSEEDED_NUMPY_GENERATOR,
    unseeded_generators.UNSEEDED_TORCH,
    unseeded_generators.UNSEEDED_TORCH_GENERATOR,
    unseeded_generators.EXTERNAL_LIBRARY_RNG,
    entropy_and_time.OS_ENTROPY,
    entropy_and_time.TIME,
    iteration_order.OBJECT_ID,
    iteration_order.HASH_ORDER,
    iteration_order.LISTING_ORDER,
    external_inputs.ENVIRONMENT_VARIABLE,
    uninitialised_memory.UNINITIALISED_MEMORY,
    concurrency.THREAD_RACE,
    concurrency.ASYNC_ORDER,
    nondeterministic_operator.NONDETERMINISTIC_OPERATOR,
    execution_settings.THREAD_COUNT,
    execution_settings.CPU_CAPABILITY,
    loader_workers.WORKER_SEED,
    loader_workers.WORKER_COUNT,
    execution_settings.BATCH_SIZE,
    execution_settings.WORLD_SIZE,
    resume.RESUME_RNG,
    resume.RESUME_POSITION,
    external_inputs.DATA_CHANGED,
    extra_draw.EXTRA_DRAW,
    fallbacks.CONTROL_FLOW,
    fallbacks.UNKNOWN,
)


def cause_of_kind(kind: str) -> Cause:
    """Raises KeyError for a kind that there is not."""
    return {cause.kind: cause for cause in CAUSES}[kind]


def list_suspects_likeliest_first(situation: Situation) -> list[Suspect]:
    """Every possible cause of a difference, the likeliest first; never empty.

    The sort is stable: of equal ranks, the order of the table decides, with sources of randomness before timing.
    """
    found = [suspect for each in CAUSES for suspect in each.find(situation)]
    return sorted(found, key=lambda s: s.rank)
