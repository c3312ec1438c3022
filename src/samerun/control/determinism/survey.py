"""Look at what is in force and change nothing: wrong environment variables, every switch, the facts for a receipt."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from samerun.base.errors import SamerunError, SwitchError, TooLateError
from samerun.base.launch import read_environ_at_process_start
from samerun.base.machine import collect_machine_facts
from samerun.base.user_code import is_library_or_generated_file, relative_to_working_folder
from samerun.control.streams import process_seed
from samerun.control.streams.stream import process_streams
from samerun.control.switches.switch import CudnnBenchmark, Level, Policy, Precision, Switch, Value, Variable
from samerun.control.switches.table import SWITCHES

# --- environment variables that make a deterministic run impossible, checked before anything is set ---


_log = logging.getLogger("samerun")
_hash_seed_warned = False
_MOMENT = {
    "before interpreter": "the interpreter",
    "before torch": "torch",
    "before CUDA": "CUDA",
    "before library": "its library",
    "any time": "torch",
}


@dataclass(frozen=True)
class VariableProblem:
    """A variable with a wrong value: `late` if it was read already, so that setting it now would not help."""

    switch: Switch
    variable: Variable
    found: str | None
    wanted: str | None
    late: bool

    @property
    def message(self) -> str:
        name = self.variable.name
        if not self.late:
            return f"{name}={self.found} in the environment will not do: valid is {self.variable.valid_values}"
        started_with = self.start_value_not_in_force
        found = f"was {(self.found or started_with)!r}" if self.found is not None or started_with else "was not set"
        if started_with not in (None, "random"):
            found += " but overridden (by python -R)"
        text = f"{name} {found} when {_MOMENT[self.switch.when]} started, and has to be {self.variable.valid_values}"
        now = os.environ.get(name)
        if now is not None and now not in (self.found, started_with):
            text += f" ({name}={now}, set later, changes nothing)"
        return text

    @property
    def start_value_not_in_force(self) -> str | None:
        """What the process was started with, where that is not in force: PYTHONHASHSEED=random, or overridden by -R."""
        if self.variable.name != "PYTHONHASHSEED" or not self.late or self.found is not None:
            return None  # what else is not in force was taken out by the program
        if sys.flags.ignore_environment:
            return None
        return read_environ_at_process_start().get(self.variable.name) or None

    @property
    def shell_remedy(self) -> str:
        """The command of a shell that solves it."""
        return f"unset {self.variable.name}" if self.wanted is None else f"export {self.variable.name}={self.wanted}"


def find_variable_problem(switch: Switch, variable: Variable, policy: Policy) -> VariableProblem | None:
    """What is wrong with one variable; None if nothing is, or if it can still be set."""
    wanted, found, already_read = variable.wanted(policy), variable.read_effective_value(), variable.already_read()
    # An unset variable is wrong only once it was read: before that, `deterministic()` sets it itself.
    wrong = not variable.is_valid(found, policy) if found is not None else already_read and wanted is not None
    if not wrong or not variable.required:
        return None
    return VariableProblem(switch, variable, found, wanted, late=already_read)


def find_environment_problems(policy: Policy) -> Iterator[VariableProblem]:
    """Yield the problems of all variables of all switches."""
    for switch in SWITCHES:
        for variable in switch.variables:
            found = find_variable_problem(switch, variable, policy)
            if found is not None:
                yield found


def raise_or_log_environment_problems(policy: Policy) -> None:
    """Raise TooLateError or SwitchError for wrong variables; with level "warn", log them and go on."""
    found = list(find_environment_problems(policy))
    if policy.unset_hash_seed == "warn" and policy.level == "error":
        others = [problem for problem in found if not _is_unset_hash_seed(problem)]
        if found and not others:
            _warn_hash_seed_once()
        found = found if others else []
    if not found:
        return
    if policy.level == "warn":
        for problem in found:
            _log.warning("deterministic(): %s. Way out: %s", problem.message, problem.shell_remedy)
        return
    raise _make_environment_error(found)


def _is_unset_hash_seed(problem: VariableProblem) -> bool:
    return problem.switch.name == "hash_seed" and problem.found is None and problem.start_value_not_in_force is None


def _warn_hash_seed_once() -> None:
    """Once in a process: everything else is deterministic."""
    global _hash_seed_warned
    if not _hash_seed_warned:
        _hash_seed_warned = True
        _log.warning(
            "deterministic(): PYTHONHASHSEED was not set when Python started, so sets of strings have another order in "
            "every process. All else is held still. Way out: samerun run, or export PYTHONHASHSEED=0 first."
        )


def _make_environment_error(problems: list[VariableProblem]) -> SamerunError:
    message = f"deterministic(): {'; '.join(problem.message for problem in problems)}."
    exports = "; ".join(problem.shell_remedy for problem in problems)
    if not any(problem.late for problem in problems):
        return SwitchError(message, f"Before the program starts: {exports}")
    return TooLateError(
        message,
        f"Start the program with `samerun run`, or first: {exports}\n"
        '  To go on without it: deterministic(..., level="warn").',
    )


def required_environment(
    threads: int | None = None, *, user_environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables that have to be set before the interpreter, torch and CUDA start. Imports none of them.

    `threads`: as in `deterministic()`. `user_environment`: where the user's own values stand (default:
    `os.environ`); a valid one is kept. Raises SwitchError for one that will not do.
    """
    policy = Policy(threads=threads)
    here = os.environ if user_environment is None else user_environment
    wanted: dict[str, str] = {}
    for switch in SWITCHES:
        for variable in switch.variables:
            value, own = variable.wanted(policy), here.get(variable.name)
            if own is not None and not variable.is_valid(own, policy):
                raise _make_environment_error([VariableProblem(switch, variable, own, value, late=False)])
            if value is not None:
                wanted[variable.name] = value if own is None else own
    return wanted


# --- every switch ---


Verdict = Literal["ok", "differs", "too late", "not applicable"]
SetBy = Literal["environment", "program", "samerun", "default", "unknown"]


@dataclass(frozen=True)
class SwitchFinding:
    """What `survey` says about one switch. Plain values only.

    wanted: None: any value will do, it is only recorded. in_force: None: not set, or not there.
    set_by: "environment" (before the program started), "program", "samerun", "default" or "unknown".
    verdict: "ok", "differs" (can still be set), "too late", or "not applicable" (its library is not here, or
    torch is not imported yet). why: the reason for the verdict. way_out: what to do, or None.
    """

    name: str
    what: str
    when: str
    wanted: Value
    in_force: Value
    set_by: SetBy
    verdict: Verdict
    why: str
    way_out: str | None


def survey(
    *,
    level: Level = "error",
    fill_uninitialized_memory: bool = True,
    precision: Precision = "ieee",
    threads: int | None = None,
    cudnn_benchmark: CudnnBenchmark = "off",
) -> list[SwitchFinding]:
    """Look at every switch, in the order of the table. The arguments are those of `deterministic()`.

    Nothing is set, imported or started. Torch's own switches are "not applicable" until the program has
    imported torch.
    """
    policy = Policy(level, fill_uninitialized_memory, precision, threads, cudnn_benchmark)
    return [_survey_switch(switch, policy) for switch in SWITCHES]


def _survey_switch(switch: Switch, policy: Policy) -> SwitchFinding:
    set_by = _find_who_set(switch)

    def finding(
        wanted: Value, in_force: Value, verdict: Verdict, why: str, way_out: str | None = None
    ) -> SwitchFinding:
        return SwitchFinding(switch.name, switch.what, switch.when, wanted, in_force, set_by, verdict, why, way_out)

    problems = [problem for problem in (find_variable_problem(switch, v, policy) for v in switch.variables) if problem]
    if not switch.available():
        if problems:
            return finding(problems[0].wanted, problems[0].found, *_judge_switch_with_wrong_variables(problems))
        why = f"{switch.module} is not imported." if switch.module else f"Nothing here uses it. {switch.why}"
        if switch.module and switch.module.partition(".")[0] == "torch" and _is_imported(switch.module):
            why = "This build of torch lacks it, or it needs a device that is not here."
        return finding(None, None, "not applicable", why)
    wanted, in_force = _get_wanted_value(switch, policy), switch.read()
    if problems:
        return finding(wanted, in_force, *_judge_switch_with_wrong_variables(problems))
    for variable in switch.variables:
        now = os.environ.get(variable.name)
        if not variable.settable_inside and now != in_force:
            why = f"This process goes by {in_force}, but those that it starts will go by {now}."
            return finding(wanted, in_force, "differs", why, f'os.environ["{variable.name}"] = "{in_force}"')
    if wanted is None:
        return finding(None, in_force, "ok", f"Only recorded. {switch.why}")
    if switch.write is not None and switch.wanted(policy) is not None and not switch.agrees(in_force, wanted):
        return finding(wanted, in_force, "differs", switch.why, "samerun.deterministic() sets it.")
    missing = [v for v in switch.variables if switch.write is None and _is_wanted_but_has_no_effective_value(v, policy)]
    late = [variable for variable in missing if variable.already_read()]
    if late:
        exports = "; ".join(f"export {variable.name}={variable.wanted(policy)}" for variable in late)
        return finding(wanted, in_force, "too late", switch.why, f"Start with `samerun run`, or: {exports}")
    if missing:
        return finding(wanted, in_force, "differs", switch.why, "samerun.deterministic() sets it.")
    return finding(wanted, in_force, "ok", switch.why)


class Judgement(NamedTuple):
    """A verdict on a switch, the reason for it, and what to do."""

    verdict: Verdict
    why: str
    way_out: str


def _judge_switch_with_wrong_variables(problems: list[VariableProblem]) -> Judgement:
    """Return the verdict on a switch whose variables are wrong, why, and the way out."""
    remedies = "; ".join(problem.shell_remedy for problem in problems)
    why = "; ".join(problem.message for problem in problems) + "."
    if any(problem.late for problem in problems):
        return Judgement("too late", why, f"Start with `samerun run`, or: {remedies}")
    return Judgement("differs", why, remedies)


def _get_wanted_value(switch: Switch, policy: Policy) -> Value:
    """Return the value that the switch wants; of one that has only variables, theirs."""
    if switch.wanted(policy) is not None:
        return switch.wanted(policy)
    values = {variable.name: variable.wanted(policy) for variable in switch.variables}
    set_ones = {name: value for name, value in values.items() if value is not None}
    return next(iter(set_ones.values())) if len(set_ones) == 1 else set_ones or None


def _is_wanted_but_has_no_effective_value(variable: Variable, policy: Policy) -> bool:
    """Whether a variable is to have a value and has none."""
    return variable.wanted(policy) is not None and variable.read_effective_value() is None


def _is_imported(module_name: str) -> bool:
    return module_name in sys.modules


def _equals_default(value: Value, default: Value) -> bool:
    if isinstance(value, dict):
        return all(default.get(name, entry) == entry for name, entry in value.items())
    return bool(value == default)


names_set_by_samerun: list[set[str]] = []
"""For each `deterministic()` that is in force, the names of the switches and variables that it has set."""


def _find_who_set(switch: Switch) -> SetBy:
    names = [variable.name for variable in switch.variables]
    if any(name in names_set for names_set in names_set_by_samerun for name in (switch.name, *names)):
        return "samerun"
    start = read_environ_at_process_start()
    if switch.available() and switch.default is not None:
        if _equals_default(switch.read(), switch.default):
            return "default"
        return "environment" if any(name in start for name in names) else "program"
    if switch.available() and switch.write is not None:
        return "environment" if any(name in start for name in names) else "unknown"
    if any(name in os.environ and os.environ[name] != start.get(name) for name in names):
        return "program"
    return "environment" if any(name in start for name in names) else "default"


# --- what is in force in this process, for a receipt ---


VARIABLE_PREFIXES = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_", "TORCH_", "PYTORCH_",
            "TORCHINDUCTOR_", "CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "TF32_", "HSA_", "MIOPEN_",
            "MALLOC_", "GLIBC_", "OPENCV_")  # fmt: skip
"""Variables that begin so are recorded where they are set: they belong to what computes."""
FURTHER_VARIABLES = ("PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONUTF8", "LD_PRELOAD", "LC_ALL", "LANG", "TZ")
DIFFERENT_EVERY_RUN = ("TORCHELASTIC_", "TORCH_NCCL_TRACE", "OMP_DISPLAY")


def collect_process_facts(moment_in_words: str) -> dict[str, Any]:
    """Return all facts, as they are now.

    `moment_in_words`: the moment, in words. Nothing is set, imported or started.
    """
    return {
        "read_at": moment_in_words,
        "knobs": {switch.name: switch.in_force for switch in survey()},
        "machine": collect_machine_facts(),
        "packages": read_installed_versions(),
        "variables": select_variables_affecting_bits(read_environ_at_process_start()),
        "seed": process_seed.current_streams_seed(),
        "streams": sorted({name for name, _, _ in process_streams}),
        "sources": digest_loaded_user_files(),
    }


def read_installed_versions() -> dict[str, str]:
    """Every installed distribution and its version."""
    from importlib import metadata  # slow to import, and needed by receipts only

    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] if distribution.metadata is not None else None
        if name:
            found[str(name).lower().replace("_", "-")] = str(distribution.version)
    return found


def digest_loaded_user_files() -> dict[str, str]:
    """Digests (BLAKE2b-256) of the program's own Python files that are loaded, by path."""
    found = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith(".py"):
            continue
        try:
            if is_library_or_generated_file(os.path.abspath(name)):
                continue
            with open(name, "rb") as file:
                digest = blake2b(file.read(), digest_size=32).hexdigest()
            inside = relative_to_working_folder(name)
        except OSError:
            continue
        found[name if inside.startswith(os.pardir) else inside] = digest
    return found


def select_variables_affecting_bits(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables on which bits can depend, as they are set."""
    known = {variable.name for switch in SWITCHES for variable in switch.variables} | set(FURTHER_VARIABLES)
    return {
        name: value
        for name, value in environment.items()
        if (name in known or name.startswith(VARIABLE_PREFIXES)) and not name.startswith(DIFFERENT_EVERY_RUN)
    }


def collect_facts_outside_program() -> dict[str, Any]:
    """The facts known outside the program, which loaded no torch or ended too early to collect its own."""
    found = collect_process_facts("outside the program")
    return {
        **found,
        "knobs": {},
        "variables": select_variables_affecting_bits(os.environ),
        "seed": None,
        "streams": [],
        "sources": {},
    }
