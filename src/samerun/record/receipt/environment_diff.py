"""How the environments of two runs differ, and which claim of reproducibility the comparison tests.

Differences are sorted by how likely they explain different bits: one ordered table of rules; the first rule whose
pattern matches the path of a difference applies. The numbers of operators in it are measured: 176 operators, forward
and gradients, torch 2.13 on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from samerun.record.receipt.code_version import digest_source_file, read_code_version
from samerun.record.receipt.recorded_command import select_allowlisted_variables
from samerun.record.receipt.redact import redact_like_recorded

MAX_VERIFY_GIT_SECONDS = 6.0
MAX_SOURCE_BYTES = 256 << 20
"""Bounds on what a stranger's receipt and repository have `samerun verify` read: sources of more bytes are not read."""


@dataclass(frozen=True)
class ImpactRule:
    """`pattern`: matches the path in the receipt. `rank`: how likely it is the reason, at most 100."""

    pattern: str
    rank: int
    changes: str


RULES = (
    ImpactRule("held.seed", 100, "every number that is drawn"),
    ImpactRule("processes/*/seeds", 98, "every number that is drawn from these generators"),
    ImpactRule("seed", 97, "every number that is drawn"),
    ImpactRule("start.models", 96, "every value: they were built before the receipt began, so seed before that"),
    ImpactRule("start.generators", 95, "every number that is drawn: seed them before the receipt begins, or in it"),
    ImpactRule("command", 94, "what the program does"),
    ImpactRule("processes/*/files", 93, "what the program computes with"),
    ImpactRule("processes/*/loaded", 93, "what the program computes with"),
    ImpactRule("code.*", 92, "what the program does"),
    ImpactRule("repository.*", 26, "little: the sources that ran are the same"),
    ImpactRule("packages.torch", 90, "which kernels there are, and how operators are put together"),
    ImpactRule("machine.torch.version", 90, "which kernels there are, and how operators are put together"),
    ImpactRule("machine.torch.git", 40, "which kernels there are"),
    ImpactRule("machine.torch.devices", 88, "which kernels run, and how they split a sum"),
    ImpactRule("knobs.threads", 86,
               "32 of 176 operators: sum, mean, var, prod, gradients of linear, "
               "convolution and normalisation, most of linalg"),
    ImpactRule("machine.torch.threads", 85,
               "32 of 176 operators: sums, normalisation, gradients of convolution, linalg"),
    ImpactRule("held.threads", 84, "the number of threads: 32 of 176 operators"),
    ImpactRule("knobs.cpu_capability", 83,
               "64 of 176 operators: softmax, normalisation, activations, attention, "
               "optimizers, normal random numbers"),
    ImpactRule("machine.torch.cpu_capability", 82,
               "64 of 176 operators: softmax, normalisation, attention, optimizers"),
    ImpactRule("machine.processor", 80, "which kernels MKL, oneDNN and torch choose: up to 89 of 176 operators"),
    ImpactRule("machine.machine", 80, "the compiled code of every operator"),
    ImpactRule("knobs.mkl_cbwr", 78, "26 of 176 operators: matmul, linear, attention, recurrent layers, linalg"),
    ImpactRule("variables.MKL_*", 77, "26 of 176 operators: matmul, linear, attention, recurrent layers, linalg"),
    ImpactRule("knobs.onednn_isa", 74, "9 of 176 operators: convolution, gelu, LSTM"),
    ImpactRule("knobs.fp32_precision", 72, "matmul and convolution in float32: TF32 has 10 bits of fraction, not 23"),
    ImpactRule("knobs.deterministic_algorithms", 70, "operators that add in the order in which threads come"),
    ImpactRule("knobs.reduced_precision_reduction", 68, "matmul in 16 bits"),
    ImpactRule("knobs.fp16_accumulation", 68, "matmul in float16"),
    ImpactRule("knobs.cudnn_*", 66, "which algorithm a convolution takes"),
    ImpactRule("machine.torch.cudnn", 66, "convolution and recurrent layers on CUDA"),
    ImpactRule("machine.torch.cuda", 65, "every kernel on CUDA"),
    ImpactRule("machine.driver", 40, "little by itself: kernels compiled at run time"),
    ImpactRule("machine.torch.driver", 40, "little by itself: kernels compiled at run time"),
    ImpactRule("knobs.sdpa", 64, "which kernel attention takes"),
    ImpactRule("knobs.hash_seed", 62, "the order of sets and of what is derived from hash(str)"),
    ImpactRule("variables.PYTHONHASHSEED", 61, "the order of sets and of what is derived from hash(str)"),
    ImpactRule("knobs.fill_uninitialized_memory", 60, "what empty() holds"),
    ImpactRule("processes/*/environment", 58, "whatever the program does with these variables"),
    ImpactRule("knobs.*", 56, "a setting on which bits can depend"),
    ImpactRule("variables.OMP_*", 54, "the number of threads"),
    ImpactRule("variables.*", 50, "what the library that reads it does"),
    ImpactRule("held.*", 48, "how the run was held still"),
    ImpactRule("held", 48, "whether the run was held still"),
    ImpactRule("packages.numpy", 46, "NumPy's results and generators"),
    ImpactRule("packages.*", 30, "what comes from this package"),
    ImpactRule("machine.python", 28, "the order of sets, the random module's methods"),
    ImpactRule("machine.*", 10, "nothing by itself; the number of threads may follow from it"),
    ImpactRule("streams", 10, "which named streams there are"),
    ImpactRule("others", 56, "settings of single ranks"),
    ImpactRule("samerun", 5, "how values are digested"),
)  # fmt: skip


def find_impact_rule(difference_path: str) -> ImpactRule:
    """The rule for a path; there is always one."""
    return next(
        (rule for rule in RULES if fnmatchcase(difference_path, rule.pattern)),
        ImpactRule(difference_path, 20, "not known"),
    )


IMPLIED_BY = {
    "machine.torch.threads": "knobs.threads",
    "machine.torch.cpu_capability": "knobs.cpu_capability",
    "machine.torch.version": "packages.torch",
    "machine.torch.git": "packages.torch",
    "variables.PYTHONHASHSEED": "knobs.hash_seed",
    "variables.MKL_CBWR": "knobs.mkl_cbwr",
    "seed": "held.seed",
    "processes/*/seeds": "held.seed",
    "held.threads": "knobs.threads",
}
"""Difference -> the difference that implies it. An implied difference is reported only if that other one is absent."""
MISSING = "not there"


@dataclass(frozen=True)
class EnvironmentDifference:
    """One difference between two environments: its path in the receipts, both values, and what it can change."""

    path: str
    a: Any
    b: Any
    rank: int
    changes: str


def find_environment_differences(a: dict[str, Any], b: dict[str, Any]) -> list[EnvironmentDifference]:
    """All differences between two receipts but for results and circumstances, the most likely explanation first."""
    found = {one.path: one for one in _iter_all_differences(a, b)}
    keep = [one for one in found.values() if not _is_implied(one.path, found)]
    return sorted(keep, key=lambda one: (-one.rank, one.path))


def _is_implied(path: str, differences_by_path: dict[str, EnvironmentDifference]) -> bool:
    parts = path.split("/")
    general = "/".join([parts[0], "*", *parts[2:]]) if len(parts) > 2 else path
    return IMPLIED_BY.get(general, "") in differences_by_path


def _iter_all_differences(a: dict[str, Any], b: dict[str, Any]) -> Iterator[EnvironmentDifference]:
    for key in ("samerun", "seed", "streams", "others", "command"):
        if a[key] != b[key]:
            yield _make_difference(key, _command_to_text_or_unchanged(a[key]), _command_to_text_or_unchanged(b[key]))
    for key in ("packages", "variables", "knobs"):
        yield from _iter_differing_top_level_entries(key, a[key], b[key])
    sources = a["code"]["sources"]
    rules = "repository" if sources and sources == b["code"]["sources"] else "code"
    for key in ("commit", "diff"):
        if a["code"][key] != b["code"][key]:
            yield _make_difference(f"code.{key}", a["code"][key], b["code"][key], rule_group=rules)
    for key in ("untracked", "sources"):
        left, right = a["code"][key] or {}, b["code"][key] or {}
        names = [name for name in sorted({*left, *right}) if left.get(name) != right.get(name)]
        if names:
            group = rules if key == "untracked" else "code"
            yield _make_difference(
                f"code.{key}",
                _select_entries_or_missing(left, names),
                _select_entries_or_missing(right, names),
                rule_group=group,
            )
    held_a, held_b = a["held"], b["held"]
    if held_a is None or held_b is None:
        if held_a != held_b:
            yield _make_difference("held", held_a is not None, held_b is not None)
    else:
        yield from _iter_differing_top_level_entries("held", held_a, held_b)
    machine_a, machine_b = dict(a["machine"]), dict(b["machine"])
    torch_a, torch_b = machine_a.pop("torch", None), machine_b.pop("torch", None)
    machine_a.pop("libraries", None), machine_b.pop("libraries", None)  # the packages hold the same versions
    yield from _iter_differing_top_level_entries("machine", machine_a, machine_b)
    if isinstance(torch_a, dict) and isinstance(torch_b, dict):
        yield from _iter_differing_top_level_entries("machine.torch", torch_a, torch_b)
    same_key = a.get("environment_key") == b.get("environment_key")
    for role in sorted(set(a["processes"]) & set(b["processes"])):
        yield from _iter_process_differences(role, a["processes"][role], b["processes"][role], same_key)


def _command_to_text_or_unchanged(value: Any) -> Any:
    return " ".join(value["words"]) if isinstance(value, dict) and "words" in value else value


def _iter_differing_top_level_entries(
    path_prefix: str, a: dict[str, Any], b: dict[str, Any]
) -> Iterator[EnvironmentDifference]:
    for key in sorted(set(a) | set(b)):
        if a.get(key) != b.get(key):
            yield _make_difference(f"{path_prefix}.{key}", a.get(key), b.get(key))


def _iter_process_differences(
    role: str, a: dict[str, Any], b: dict[str, Any], has_same_environment_key: bool
) -> Iterator[EnvironmentDifference]:
    """`has_same_environment_key`: the digests of values can be compared, not only the names of those read."""
    for key, by in (("files", "path"), ("loaded", "name")):
        left, right = ({str(e[by]): e["digest"] for e in one[key]} for one in (a, b))
        names = [name for name in sorted(set(left) | set(right)) if left.get(name) != right.get(name)]
        if names:
            yield _make_difference(
                f"processes/{role}/{key}", *(_select_entries_or_missing(side, names) for side in (left, right))
            )
    names = [n for n in sorted(set(a["environment"]) | set(b["environment"]))
             if (a["environment"].get(n) != b["environment"].get(n) if has_same_environment_key
                 else (n in a["environment"]) != (n in b["environment"]))]  # fmt: skip
    if names:
        yield _make_difference(
            f"processes/{role}/environment",
            *(_select_entries_or_missing(side["environment"], names) for side in (a, b)),
        )
    if a["seeds"] != b["seeds"]:
        one, other = ([_describe_seed(e) for e in side["seeds"]] for side in (a, b))
        only_a, only_b = set(one) - set(other), set(other) - set(one)
        yield _make_difference(
            f"processes/{role}/seeds",
            [seed for seed in one if seed in only_a] or one,
            [seed for seed in other if seed in only_b] or other,
        )


def _select_entries_or_missing(entries: dict[str, str], names: list[str]) -> dict[str, str]:
    return {name: entries.get(name, MISSING) for name in names}


def _describe_seed(entry: dict[str, Any]) -> str:
    value = "without a seed" if entry["unseeded"] else entry["seed"] if entry["seed"] is not None else entry["digest"]
    return f"{entry['generator']} {value}" + (f" ({entry['at']})" if entry["at"] else "")


def _make_difference(path: str, a: Any, b: Any, *, rule_group: str = "") -> EnvironmentDifference:
    """`rule_group`: the group whose rule applies instead of that of the path."""
    rule = find_impact_rule(f"{rule_group}.{path.partition('.')[2]}" if rule_group else path)
    return EnvironmentDifference(path, a, b, rule.rank, rule.changes)


def iter_initial_state_differences(
    a: dict[str, Any], b: dict[str, Any], generator_names: tuple[str, ...]
) -> Iterator[EnvironmentDifference]:
    """What already differed when the `samerun.receipt` blocks began: models, and the generators of these names."""
    starts = [one["circumstances"].get("start") for one in (a, b)]
    if any(start is None for start in starts):
        return
    models = [[f"{one['model']} {one['digest'][:8]}" for one in start["models"]] for start in starts]
    if models[0] != models[1]:
        only = [[one for one in side if one not in other] for side, other in (models, models[::-1])]
        yield _make_difference("start.models", *(", ".join(side) or MISSING for side in only))
    states = [start["generators"] for start in starts]
    names = [name for name in generator_names if states[0].get(name) != states[1].get(name)]
    if names:
        yield _make_difference("start.generators", *(_select_entries_or_missing(side, names) for side in states))


Tier = Literal["T0", "T1", "T2", "T3"]
TIERS: dict[Tier, str] = {
    "T0": "rerun: same machine, same environment, same command",
    "T1": "environment: also another environment of the process",
    "T2": "shape of the run: also another number of threads or workers",
    "T3": "anywhere: also another processor, device, torch release or system",
}
_ANYWHERE = ("packages.torch", "machine.processor", "machine.machine", "machine.system", "machine.torch.*",
             "knobs.cpu_capability", "knobs.mkl_cbwr", "knobs.onednn_isa", "variables.ATEN_*", "variables.MKL_CBWR",
             "variables.ONEDNN_*", "packages.numpy", "machine.python", "machine.implementation")  # fmt: skip
_SHAPE = ("knobs.threads", "held.threads", "machine.torch.threads", "machine.torch.interop_threads",
          "variables.OMP_*", "machine.cores*")  # fmt: skip
_ENVIRONMENT = ("variables.*", "knobs.hash_seed", "processes/*/environment", "packages.*")


def find_tested_tier(differences: list[EnvironmentDifference]) -> Tier:
    """The highest tier of the promise that a comparison of runs with these differences tests."""
    paths = [one.path for one in differences]
    tiers: tuple[tuple[Tier, tuple[str, ...]], ...] = (("T3", _ANYWHERE), ("T2", _SHAPE), ("T1", _ENVIRONMENT))
    for tier, patterns in tiers:
        inner = ("machine.torch.threads", "machine.torch.interop_threads") if tier == "T3" else ()
        if any(fnmatchcase(path, pattern) for path in paths for pattern in patterns if path not in inner):
            return tier
    return "T0"


def list_environment_differences_here(receipt: dict[str, Any], facts_here: dict[str, Any]) -> list[dict[str, Any]]:
    """The differences between a receipt's environment and this machine, before anything runs.

    `facts_here`: those of this machine, collected without running the program. No file is read but sources inside the
    working directory.
    """
    machine = {k: v for k, v in receipt["machine"].items() if k != "torch"}
    variables = redact_like_recorded(
        {**facts_here["variables"], **select_allowlisted_variables(receipt["variables"])}, receipt["variables"]
    )
    held = ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "TORCH_DISABLE_NATIVE_JIT") if receipt["held"] else ()
    here = {
        **receipt,
        "machine": facts_here["machine"],
        "packages": facts_here["packages"],
        "variables": {**variables, **{n: receipt["variables"][n] for n in held if n in receipt["variables"]}},
        "code": {
            **_read_git_state_here_if_recorded(receipt["code"]),
            "sources": _digest_recorded_sources_here(receipt["code"]["sources"]),
        },
    }
    return [asdict(one) for one in find_environment_differences({**receipt, "machine": machine}, here)]


def _read_git_state_here_if_recorded(recorded: dict[str, Any]) -> dict[str, Any]:
    """The code version here, for the parts that the receipt records."""
    found = read_code_version(Path.cwd(), time_limit_seconds=MAX_VERIFY_GIT_SECONDS)
    return {key: found[key] if recorded[key] is not None else None for key in ("commit", "diff", "untracked")}


def _digest_recorded_sources_here(recorded: dict[str, str]) -> dict[str, str]:
    here = Path.cwd().resolve()
    found, unread = dict[str, str](), MAX_SOURCE_BYTES
    for name, digest in recorded.items():
        try:
            path = (here / name).resolve()
            inside = path.is_relative_to(here) and path.is_file()
        except (OSError, ValueError, RuntimeError):
            continue
        if Path(name).is_absolute():
            found[name] = digest  # absolute paths in a stranger's receipt are not read
        elif (
            inside and (unread := unread - _size_or_zero(path)) >= 0 and (mine := digest_source_file(path)) is not None
        ):
            found[name] = mine
    return found


def _size_or_zero(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
