"""A step of each rank computed by another rank as well. A face, of `samerun.guard(..., also="peer")` alone."""

from __future__ import annotations

import itertools
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from samerun.base.errors import SamerunError, StepNotRepeatableError
from samerun.base.machine import collect_torch_facts, read_cpu_model_name
from samerun.control.mesh_coordinates import (
    CoordinatesByMesh,
    recorded_mesh_coordinates,
    replaced_mesh_coordinates,
)
from samerun.control.rank_exchange import (
    RankExchange,
    choose_rank_distance,
    pack_arguments,
    require_equal_parts,
    unpack_arguments,
)
from samerun.control.rng.training_snapshot import GENERATOR, TrainingSnapshot
from samerun.control.streams.process_seed import acting_as_rank
from samerun.step_computation import ComputedStep, StepDifference, StepDigests, compute_and_digest_step, digest_value


class Suspicion(NamedTuple):
    """A step of a rank that two ranks computed differently.

    `wrong`: the ranks that may have computed it wrong; one, if it is known. `repeats`: they differed again when it was
    computed again. `collective`: the result of a collective that ranks had got differently.
    """

    step_of: int
    wrong: tuple[int, ...]
    operator: str
    repeats: bool
    location: str = ""
    is_collective: bool = False

    def is_repeated_without_fault(self, second: Attempt) -> bool:
        """Whether two ranks differed again, but in what they were given."""
        difference = None if self.is_collective else second.differences[self.step_of]
        return self.repeats and difference is not None and not difference.has_operator_differing_on_same_inputs


class StepSummary(NamedTuple):
    """What all ranks are told of a step of one.

    `values`: digest and shape of each value that was there before it. `collectives`: name and digest of each result,
    and whether every rank must have got it.
    """

    values: dict[Any, tuple[bytes, Any]]
    collectives: list[tuple[str, bytes, bool]]

    @property
    def parts(self) -> dict[Any, Any]:
        """The shapes of the parts' values: what another rank must have as well."""
        return {key: shape for key, (_, shape) in self.values.items() if key[0] != GENERATOR}

    @property
    def shared_collective_results(self) -> list[tuple[str, bytes]]:
        return [(name, digest) for name, digest, is_shared in self.collectives if is_shared]


class StepPacket(NamedTuple):
    """What another rank needs to compute a step of this one, and to compare.

    `values`, `collectives`: what that rank does not have itself; None in the place of a result that it has.
    """

    values: dict[Any, Any]
    arguments: Any
    own_generators: list[Any]
    collectives: list[Any]
    mesh_coordinates: CoordinatesByMesh
    digests: StepDigests


class Attempt(NamedTuple):
    """One computation of the step by every rank, and of its neighbour's step.

    `packet`: of this rank's step, with everything. `differences`: by the rank whose step it is. `summaries`: by rank.
    `unstable`: the names of reductions over ranks that gave something else when they were repeated, on any rank.
    """

    original: ComputedStep
    packet: StepPacket
    summaries: list[StepSummary]
    replay: StepDigests
    differences: list[StepDifference | None]
    unstable: list[str]

    @property
    def shared(self) -> list[list[tuple[str, bytes]]]:
        """By rank, name and digest of what collectives gave to all."""
        return [summary.shared_collective_results for summary in self.summaries]

    @property
    def is_clean(self) -> bool:
        return not any(self.differences) and not self.unstable and find_first_unequal_result_index(self.shared) is None


class PeerResult(NamedTuple):
    """`computed`: whose results the training has. `suspicions`: what was found; the same on every rank."""

    computed: ComputedStep
    suspicions: list[Suspicion]


class PeerCheck:
    """Steps of a training, each computed by two ranks, which hold the same parameters or parts of the same shapes.

    Rank r computes what rank r - `distance` did: on another machine, where there are several.
    """

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self.exchange = RankExchange()
        self.rank, self.world = self.exchange.rank, self.exchange.world_size
        self._require_no_flat_parameters()
        self._require_equal_machines()
        self.hosts: list[str] = self.exchange.gather(platform.node())
        self.distance = choose_rank_distance(self.hosts, [0])
        self.third_distance = choose_rank_distance(self.hosts, [0, self.distance]) if self.world > 2 else 0

    def compute(self, function: Callable[..., Any], arguments: tuple[Any, Any], step_number: int) -> PeerResult:
        """Compute a step, have it computed by another rank, and compare. `step_number`: of the step, for messages.

        Where something differs, all is computed once more, and a third rank computes what differs again.
        """
        snapshot = TrainingSnapshot(self.parts, arguments)
        packed = pack_arguments(arguments)
        first = self._compute_own_and_neighbor_step(function, arguments, packed, snapshot)
        if first.is_clean:
            return PeerResult(first.original, [])
        _restore(snapshot, first.original)
        second = self._compute_own_and_neighbor_step(function, arguments, packed, snapshot, first)
        third = None
        if any(second.differences) and self.world > 2:
            third, _ = self._replay_step_of_rank_before(self.third_distance, function, snapshot, second, True)
        suspicions = self._gather_suspicions_from_replays(first, second, third)
        self._raise_unless_machine_may_be_at_fault(second, suspicions, step_number)
        return PeerResult(second.original, [each for each in suspicions if not each.is_repeated_without_fault(second)])

    # --- computing -----------------------------------------------------------------------------------------------
    def _compute_own_and_neighbor_step(
        self, function: Callable[..., Any], arguments: Any, packed_arguments: Any, before: TrainingSnapshot,
        earlier: Attempt | None = None,
    ) -> Attempt:  # fmt: skip
        """Compute the step of this rank and that of its neighbour. Afterwards the training is behind its own step."""
        from samerun.record.watching.collective_results import CollectiveResults

        located = earlier.differences[self.rank] if earlier else None
        collectives = CollectiveResults()
        args, kwargs = arguments
        with recorded_mesh_coordinates() as coordinates:
            original = compute_and_digest_step(
                lambda: function(*args, **kwargs), self.parts, located.operator if located else None, collectives,
                earlier is not None,
            )  # fmt: skip
        if any(self.exchange.gather(bool(collectives.messages))):
            raise SamerunError(
                f'guard(also="peer"): the step sends messages from rank to rank ({collectives.messages or "another"}).',
                hint="A rank alone cannot compute what depends on them. Leave out also=.",
            )
        values = before.get_kept_values_by_key()
        summary = StepSummary(
            {key: (digest_value(value), getattr(value, "shape", None)) for key, value in values.items()},
            collectives.summarize(),
        )
        summaries: list[StepSummary] = self.exchange.gather(summary)
        require_equal_parts([each.parts for each in summaries])
        generators = list(original.operators.generators.values())
        packet = StepPacket(values, packed_arguments, generators, collectives.kept, coordinates, original.digests)
        called = [[name for name, _, _ in each.collectives] for each in summaries]
        unstable = collectives.repeat_reductions() if called.count(called[0]) == self.world else []
        unstable = sorted({name for names in self.exchange.gather(unstable) for name in names})
        attempt = Attempt(original, packet, summaries, original.digests, [], unstable)
        replay, found = self._replay_step_of_rank_before(self.distance, function, before, attempt, earlier is not None)
        by_computing_rank: list[StepDifference | None] = self.exchange.gather(found)
        differences = [by_computing_rank[(rank + self.distance) % self.world] for rank in range(self.world)]
        return attempt._replace(replay=replay, differences=differences)

    def _replay_step_of_rank_before(
        self,
        rank_distance: int,
        function: Callable[..., Any],
        before: TrainingSnapshot,
        attempt: Attempt,
        digests_inputs: bool,
    ) -> tuple[StepDigests, StepDifference | None]:
        """Compute the step of the rank `rank_distance` before this, from what that one sends; compare, and go back."""
        from samerun.record.watching.collective_results import CollectiveResults

        whose = self._before(rank_distance)
        original = attempt.original
        after = TrainingSnapshot(self.parts)
        states_after = {generator: generator.get_state() for generator in original.operators.generators}
        packet = self.exchange.pass_on(self._make_packet_without_known_values(attempt, rank_distance), rank_distance)
        args, kwargs = unpack_arguments(packet.arguments)
        results = [
            attempt.packet.collectives[at] if result is None else result for at, result in enumerate(packet.collectives)
        ]
        before.restore()
        with acting_as_rank(whose), replaced_mesh_coordinates(packet.mesh_coordinates):
            before.replace_values_after_restore(packet.values)
            for generator, state in zip(original.operators.generators, packet.own_generators, strict=False):
                generator.set_state(state)
            computed = compute_and_digest_step(
                lambda: function(*args, **kwargs), self.parts, None, CollectiveResults(results), digests_inputs
            )
        after.restore()
        for generator, state in states_after.items():
            generator.set_state(state)
        replay = computed.digests.only_generators_of(packet.digests)
        return replay, packet.digests.only_generators_of(replay).find_difference(replay)

    def _make_packet_without_known_values(self, attempt: Attempt, distance: int) -> StepPacket:
        """The packet for the rank `distance` further on: of its own values it needs none."""
        there = attempt.summaries[(self.rank + distance) % self.world]
        mine, packet = attempt.summaries[self.rank], attempt.packet
        values = {key: value for key, value in packet.values.items() if there.values.get(key) != mine.values[key]}
        results = [
            None if at < len(there.collectives) and there.collectives[at] == mine.collectives[at] else result
            for at, result in enumerate(packet.collectives)
        ]
        return packet._replace(values=values, collectives=results)

    # --- judging -------------------------------------------------------------------------------------------------
    def _gather_suspicions_from_replays(
        self, first: Attempt, second: Attempt, third_rank_replay: StepDigests | None
    ) -> list[Suspicion]:
        """Whose results were wrong. Called by all ranks, and the same on all."""
        told: dict[tuple[int, int, str], Any] = {}
        for number, attempt in ((1, first), (2, second)):
            for whose, digests in (
                (self.rank, {"own": first.original.digests, "own again": second.original.digests}),
                (self._before(self.distance), {"peer": first.replay, "peer again": second.replay}),
                (self._before(self.third_distance), {"third": third_rank_replay}),
            ):
                difference = attempt.differences[whose]
                for who, held in digests.items():
                    if difference is not None and isinstance(held, StepDigests):
                        told[whose, number, who] = held.get_own_digests_where_others_differ(difference)
        testimony: dict[tuple[int, int, str], Any] = {}
        for each in self.exchange.gather(told):
            testimony.update(each)
        locations = self.exchange.gather(second.original.operators.location)
        found = self._find_ranks_with_unequal_collectives(first, second)
        for whose, (number, attempt) in itertools.product(range(self.world), ((1, first), (2, second))):
            difference = attempt.differences[whose]
            if difference is None or (difference.is_other_program and second.differences[whose] is None):
                continue  # what a program makes once and keeps: it now runs the same operators
            had = {who: testimony.get((whose, number, who)) for who in WITNESSES}
            location = locations[whose] if difference == first.differences[whose] else ""
            wrong = self._find_wrong_ranks(whose, had, number)
            found.append(Suspicion(whose, wrong, difference.name, number == 2, location))
        known = {each.wrong[0] for each in found if len(each.wrong) == 1}
        # One rank that is wrong differs in its own step, and in that of its neighbour.
        return [each for each in found if len(each.wrong) == 1 or not known & set(each.wrong)]

    def _find_wrong_ranks(
        self, step_owner_rank: int, digests_by_witness: dict[str, Any], attempt_number: int
    ) -> tuple[int, ...]:
        """The rank that had something else than others in the step of rank `step_owner_rank`; several, if that is not
        known.
        """
        peer, third = (
            (step_owner_rank + self.distance) % self.world,
            (step_owner_rank + self.third_distance) % self.world,
        )
        if attempt_number == 1 and digests_by_witness["own again"] == digests_by_witness["peer again"]:
            wrong = [
                rank
                for rank, who in ((step_owner_rank, "own"), (peer, "peer"))
                if digests_by_witness[who] != digests_by_witness["own again"]
            ]
            return tuple(wrong) if len(wrong) == 1 else tuple(sorted((step_owner_rank, peer)))
        if self.world > 2 and digests_by_witness["third"] is not None:
            agreeing = {"own again": peer, "peer again": step_owner_rank}
            for who, wrong_rank in agreeing.items():
                if digests_by_witness["third"] == digests_by_witness[who]:
                    return (wrong_rank,)
            return tuple(sorted((step_owner_rank, peer, third)))
        return tuple(sorted((step_owner_rank, peer)))

    def _find_ranks_with_unequal_collectives(self, first: Attempt, second: Attempt) -> list[Suspicion]:
        """Of results that all ranks must have got, who got another one."""
        found = []
        for attempt in (first, second):
            at = find_first_unequal_result_index(attempt.shared)
            if at is None:
                continue
            had = [results[at] if at < len(results) else None for results in attempt.shared]
            right = max(had, key=had.count)
            if attempt is first and find_first_unequal_result_index(second.shared) is None:
                repeated = second.shared[0][at] if at < len(second.shared[0]) else None
                right = repeated if repeated in had else right
            wrong = [rank for rank, result in enumerate(had) if result != right]
            is_known = had.count(right) > len(wrong) or (attempt is first and second.is_clean)
            name = next(result[0] for result in had if result is not None)
            suspects = tuple(wrong) if is_known else tuple(range(self.world))
            found.append(Suspicion(-1, suspects, name, attempt is second, is_collective=True))
        if not found and (first.unstable or second.unstable):
            name = (second.unstable or first.unstable)[0]
            found.append(Suspicion(-1, tuple(range(self.world)), name, bool(second.unstable), is_collective=True))
        return found

    def _raise_unless_machine_may_be_at_fault(
        self, second: Attempt, suspicions: list[Suspicion], step_number: int
    ) -> None:
        """Raises StepNotRepeatableError if what differs again and again need not be a fault of a machine."""
        differences = [difference for difference in second.differences if difference is not None]
        for difference in differences:
            operator = difference.operator
            if operator is not None and difference.has_operator_differing_on_same_inputs:
                if not operator.is_unordered or second.original.operators.uses_deterministic_operators:
                    return
                raise StepNotRepeatableError(
                    f"step {step_number} cannot be compared: {difference.name} may add in another order each time.",
                    hint="Call samerun.deterministic() before the training.",
                )
        for whose, again in enumerate(second.differences):
            if again is not None:
                ranks = next((each.wrong for each in suspicions if each.step_of == whose and each.repeats), ())
                odd = f" (what rank {ranks[0]} has is unlike that of the others)" if len(ranks) == 1 else ""
                raise StepNotRepeatableError(
                    f"step {step_number} of rank {whose} has other results each time that rank"
                    f" {(whose + self.distance) % self.world} computes it{odd}; the first difference is"
                    f" {'what goes into ' if again.operator else 'at '}{again.name}.",
                    hint="Either the step depends on the rank by something that guard() was not given (an object with a"
                    " state, a generator of its own, the rank itself: pass it as an argument), or memory of one of the"
                    " two is defective.",
                )

    def _before(self, distance: int) -> int:
        return (self.rank - distance) % self.world

    # --- what can be checked -------------------------------------------------------------------------------------
    def _require_no_flat_parameters(self) -> None:
        """Raises SamerunError for the first version of FSDP, which keeps views of its parts."""
        import torch

        wrapped = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", ())
        for part in self.parts:
            if isinstance(part, torch.nn.Module) and any(isinstance(module, wrapped) for module in part.modules()):
                raise SamerunError(
                    'guard(also="peer"): the model is sharded with FullyShardedDataParallel.',
                    hint='Use fully_shard; or leave out also="peer", and the same ranks compute the step twice.',
                )

    def _require_equal_machines(self) -> None:
        """Raises SamerunError if ranks may compute other bits though none is defective."""
        import torch

        from samerun.numerics.dispatch.portable import is_inside_portable

        told = collect_torch_facts(torch)
        facts = {key: told[key] for key in ("version", "cpu_capability", "threads", "cudnn", "devices")}
        ranks = self.exchange.gather({**facts, "processor": read_cpu_model_name(), "portable": is_inside_portable()})
        if all(each["portable"] for each in ranks):
            return
        for name, value in ranks[0].items():
            other = next((each[name] for each in ranks if each[name] != value), None)
            if other is not None:
                raise SamerunError(
                    f'guard(also="peer"): the ranks differ in {name}: {value} and {other}. They may compute other bits'
                    " though none is wrong.",
                    hint='Use samerun.portable(), or machines that are alike; or leave out also="peer".',
                )


WITNESSES = ("own", "own again", "peer", "peer again", "third")


def find_first_unequal_result_index(results_by_rank: Sequence[list[tuple[str, bytes]]]) -> int | None:
    """The number of the first result that not all ranks have got; None if all are the same."""
    for at in range(max(map(len, results_by_rank))):
        if len({results[at] if at < len(results) else None for results in results_by_rank}) > 1:
            return at
    return None


def _restore(snapshot: TrainingSnapshot, computed: ComputedStep) -> None:
    snapshot.restore()
    for generator, state in computed.operators.generators.items():
        generator.set_state(state)
