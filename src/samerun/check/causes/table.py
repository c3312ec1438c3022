"""Every kind of cause, in the order in which equally good suspects are tried."""

from __future__ import annotations

from samerun.check.causes import (
    async_order,
    batch_size,
    control_flow,
    cpu_capability,
    data_changed,
    environment_variable,
    external_library_rng,
    extra_draw,
    hash_order,
    listing_order,
    nondeterministic_operator,
    object_id,
    os_entropy,
    resume_position,
    resume_rng,
    thread_count,
    thread_race,
    time_of_day,
    uninitialised_memory,
    unknown,
    unseeded_numpy_generator,
    unseeded_numpy_global,
    unseeded_python,
    unseeded_torch,
    unseeded_torch_generator,
    worker_count,
    worker_seed,
    world_size,
)
from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect

CAUSES: tuple[Cause, ...] = (
    unseeded_python.CAUSE,
    unseeded_numpy_global.CAUSE,
    unseeded_numpy_generator.CAUSE,
    unseeded_torch.CAUSE,
    unseeded_torch_generator.CAUSE,
    external_library_rng.CAUSE,
    os_entropy.CAUSE,
    time_of_day.CAUSE,
    object_id.CAUSE,
    hash_order.CAUSE,
    listing_order.CAUSE,
    environment_variable.CAUSE,
    uninitialised_memory.CAUSE,
    thread_race.CAUSE,
    async_order.CAUSE,
    nondeterministic_operator.CAUSE,
    thread_count.CAUSE,
    cpu_capability.CAUSE,
    worker_seed.CAUSE,
    worker_count.CAUSE,
    batch_size.CAUSE,
    world_size.CAUSE,
    resume_rng.CAUSE,
    resume_position.CAUSE,
    data_changed.CAUSE,
    extra_draw.CAUSE,
    control_flow.CAUSE,
    unknown.CAUSE,
)


def cause_of_kind(kind: str) -> Cause:
    return next(c for c in CAUSES if c.kind == kind)


def find_suspects(situation: Situation) -> list[Suspect]:
    """Every possible cause of a difference, the likeliest first; never empty.

    The sort is stable: of equal ranks, the order of the table decides, with sources of randomness before timing.
    """
    found = [suspect for each in CAUSES for suspect in each.find(situation)]
    return sorted(found, key=lambda s: s.rank)
