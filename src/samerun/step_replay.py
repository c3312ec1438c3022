"""A checked step kept in a file, and computed again by another process, on another machine say. A face, of `guard`.

`python -m samerun.step_replay FILE -- SCRIPT ARGS...` runs a program up to its first guarded step, computes the kept
one there, and says on its last line what differs: what `samerun verify --step` starts.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from samerun.base.errors import CheckpointError, SamerunError
from samerun.base.files import replace_file_atomically
from samerun.base.machine import collect_machine_facts
from samerun.control.rank_exchange import PackedTensor, pack_arguments, unpack_arguments
from samerun.control.rng.training_snapshot import GENERATOR, TrainingSnapshot
from samerun.step_computation import ComputedStep, StepDigests, compute_and_digest_step

if TYPE_CHECKING:
    from samerun.record.watching.operator_digests import ExecutedOperator

LAYOUT = 1
FILE_VARIABLE = "SAMERUN_REPLAY_STEP"
ANSWER = "SAMERUN-STEP "
"""What the line with the answer begins with."""
MAX_COMPUTATIONS = 3
"""So often the step is computed while it runs other operators than the kept one, as it may at the first."""


class StepBeginning(NamedTuple):
    """What a step begins with: values of the parts and generators, and its arguments."""

    values: dict[Any, Any]
    arguments: Any


def take_step_beginning(parts: tuple[Any, ...], arguments: Any) -> StepBeginning:
    return StepBeginning(TrainingSnapshot(parts).get_kept_values_by_key(), pack_arguments(arguments))


def write_step(path: Path, step_number: int, beginning: StepBeginning, computed: ComputedStep) -> None:
    """Keep a step: what it began with, and the digests of what it computed. Raises SamerunError for odd arguments."""
    from samerun.data import checkpoint_file

    digests = computed.digests
    body = {
        "step": step_number,
        "values": [[kind, at, value] for (kind, at), value in beginning.values.items()],
        "arguments": _packed_tensors_to_dicts(beginning.arguments),
        "generators": list(computed.operators.generators.values()),
        "lanes": {lane: [_operator_to_plain(operator) for operator in found] for lane, found in digests.lanes.items()},
        "end": {name: value.hex() for name, value in digests.end.items()},
        "machine": {key: str(value) for key, value in collect_machine_facts().items()},
    }
    try:
        checkpoint_file.require_loadable_with_weights_only(body, "step")
    except CheckpointError as error:
        raise SamerunError(
            f"guard(keep=True): {error.message}", hint="Pass the step tensors, numbers, texts, lists and dicts."
        ) from error
    content = {"samerun_step": LAYOUT, "body": body, "digest": checkpoint_file.digest_plain_value(body)}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file_atomically(path, lambda file: checkpoint_file.write_torch_archive(content, file))


def read_step(path: Path) -> dict[str, Any]:
    """What `write_step` kept. Raises SamerunError for anything else; nothing that a file brings is run."""
    from samerun.data import checkpoint_file

    try:
        content, size = checkpoint_file.map_untrusted_archive_into_memory(path)
        is_ours = isinstance(content, dict) and content.get("samerun_step") == LAYOUT
        budget = 4 * size + checkpoint_file.MIN_BUDGET
        if (
            not is_ours
            or checkpoint_file.digest_plain_value(content.get("body"), max_bytes=budget) != content["digest"]
        ):
            raise checkpoint_file.UnreadableCheckpoint("it is damaged, or of another kind")
        body: dict[str, Any] = content["body"]
        checkpoint_file.copy_tensors_out_of_mapped_file(body)
        return body
    except (checkpoint_file.UnreadableCheckpoint, CheckpointError, OSError, KeyError, TypeError) as error:
        raise SamerunError(
            f"{path} holds no step: {error}.", hint="samerun.guard(..., keep=True) writes such files."
        ) from error


def replay_step_and_exit_if_asked(parts: tuple[Any, ...], function: Callable[..., Any]) -> None:
    """Where this process was started for it: compute the kept step with the program's function, and end the process."""
    path = os.environ.get(FILE_VARIABLE)
    if path is None:
        return
    try:
        kept = read_step(Path(path))
        try:
            answer = _replay_and_make_answer(kept, parts, function)
        except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
            raise SamerunError(f"{path} holds no step, or the program failed in it: {error!r}.") from error
    except SamerunError as error:
        answer = {"verdict": "trouble", "message": error.message, "hint": error.hint}
    _answer(answer)


def _replay_and_make_answer(
    kept: dict[str, Any], parts: tuple[Any, ...], function: Callable[..., Any]
) -> dict[str, Any]:
    values = {(kind, at): value for kind, at, value in kept["values"]}
    snapshot = TrainingSnapshot(parts)
    if not _has_same_keys_and_shapes_except_generators(snapshot, values):
        # An optimizer makes its state in its first step.
        args, kwargs = unpack_arguments(_dicts_to_packed_tensors(kept["arguments"]))
        function(*args, **kwargs)
        snapshot = TrainingSnapshot(parts)
    if not _has_same_keys_and_shapes_except_generators(snapshot, values):
        raise SamerunError(
            f"The program does not hold what it held before step {kept['step']}: it has other parameters or another"
            " optimizer.",
            hint="Is it the same program, with the same arguments?",
        )
    lanes = {lane: [_operator_from_plain(operator) for operator in found] for lane, found in kept["lanes"].items()}
    theirs = StepDigests(lanes, {name: bytes.fromhex(value) for name, value in kept["end"].items()})
    located, difference = None, None
    own_generators: dict[Any, Any] = {}
    for _ in range(MAX_COMPUTATIONS):
        snapshot.restore()
        snapshot.replace_values_after_restore(values)
        for generator, state in zip(own_generators, kept["generators"], strict=False):
            generator.set_state(state)
        args, kwargs = unpack_arguments(_dicts_to_packed_tensors(kept["arguments"]))
        computed = compute_and_digest_step(partial(function, *args, **kwargs), parts, located, is_other_process=True)
        settled = len(own_generators) == len(computed.operators.generators)
        own_generators = computed.operators.generators
        here = computed.digests.only_generators_of(theirs)
        difference = theirs.only_generators_of(here).find_difference(here)
        if difference is None or (located is not None and located == difference.operator):
            break
        located = difference.operator if settled else None
    found = {"step": kept["step"], "machine": kept["machine"], "operators": sum(map(len, lanes.values()))}
    if difference is None:
        return {**found, "verdict": "same", "operator": None, "location": None, "at_end": []}
    return {
        **found,
        "verdict": "different",
        "operator": difference.operator.operator if difference.operator else None,
        "location": computed.operators.location or None,
        "at_end": difference.at_end,
        "is_other_program": difference.is_other_program,
    }


def _has_same_keys_and_shapes_except_generators(snapshot: TrainingSnapshot, values: dict[Any, Any]) -> bool:
    here = snapshot.get_kept_values_by_key()
    parts = [{key: getattr(value, "shape", None) for key, value in held.items() if key[0] != GENERATOR}
             for held in (here, values)]  # fmt: skip
    return parts[0] == parts[1]


def _answer(answer: dict[str, Any]) -> NoReturn:
    sys.stdout.flush()
    os.write(1, f"\n{ANSWER}{json.dumps(answer)}\n".encode())
    raise SystemExit(0)


def _operator_to_plain(operator: ExecutedOperator) -> list[Any]:
    name, geometry, digest, collectives, is_concurrent, _ = operator
    shapes = [list(shape) for shape, _ in geometry]  # another process has the batch elsewhere in its memory
    return [name, shapes, digest.hex(), collectives, is_concurrent]


def _operator_from_plain(operator: list[Any]) -> ExecutedOperator:
    import torch

    from samerun.record.watching.operator_digests import ExecutedOperator

    name, geometry, digest, collectives, is_concurrent = operator
    shapes = tuple((torch.Size(shape), 0) for shape in geometry)
    return ExecutedOperator(name, shapes, bytes.fromhex(digest), collectives, is_concurrent)


_PACKED = "samerun packed tensor"


def _packed_tensors_to_dicts(value: Any) -> Any:
    """Packed tensors as dicts, which a file may hold."""
    if isinstance(value, PackedTensor):
        return {_PACKED: [value.content, list(value.shape), list(value.stride), *value[3:]]}
    if isinstance(value, dict):
        return {key: _packed_tensors_to_dicts(inner) for key, inner in value.items()}
    return type(value)(map(_packed_tensors_to_dicts, value)) if type(value) in (list, tuple) else value


def _dicts_to_packed_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        if _PACKED in value:
            return PackedTensor(*value[_PACKED])
        return {key: _dicts_to_packed_tensors(inner) for key, inner in value.items()}
    return type(value)(map(_dicts_to_packed_tensors, value)) if type(value) in (list, tuple) else value


def main(step_file_and_program: list[str]) -> None:
    """Run a script, or a module behind -m, as Python would."""
    file, _, *program = step_file_and_program
    os.environ[FILE_VARIABLE] = file
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
