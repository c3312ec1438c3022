"""How the surroundings of two runs differ, the likeliest reason for other bits first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from samerun.record.receipt.matters import rule_for

SAME_THING = {
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
"""What follows from another difference is told only where that other one is not there."""
MISSING = "not there"


@dataclass(frozen=True)
class Differing:
    """One thing that is not the same: where it stands in the receipts, both values, and what it can change."""

    path: str
    a: Any
    b: Any
    rank: int
    changes: str


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[Differing]:
    """Of two receipts: everything but what the runs computed, and the circumstances."""
    found = {one.path: one for one in _all(a, b)}
    keep = [one for one in found.values() if not _follows(one.path, found)]
    return sorted(keep, key=lambda one: (-one.rank, one.path))


def _follows(path: str, found: dict[str, Differing]) -> bool:
    parts = path.split("/")
    general = "/".join([parts[0], "*", *parts[2:]]) if len(parts) > 2 else path
    return SAME_THING.get(general, "") in found


def _all(a: dict[str, Any], b: dict[str, Any]) -> Iterator[Differing]:
    for key in ("samerun", "seed", "streams", "others", "command"):
        if a[key] != b[key]:
            yield _one(key, _words(a[key]), _words(b[key]))
    for key in ("packages", "variables", "knobs"):
        yield from _entries(key, a[key], b[key])
    sources = a["code"]["sources"]
    rules = "repository" if sources and sources == b["code"]["sources"] else "code"
    for key in ("commit", "diff"):
        if a["code"][key] != b["code"][key]:
            yield _one(f"code.{key}", a["code"][key], b["code"][key], rules=rules)
    for key in ("untracked", "sources"):
        left, right = a["code"][key] or {}, b["code"][key] or {}
        names = [name for name in sorted({*left, *right}) if left.get(name) != right.get(name)]
        if names:
            yield _one(
                f"code.{key}", _of(left, names), _of(right, names), rules=rules if key == "untracked" else "code"
            )
    held_a, held_b = a["held"], b["held"]
    if held_a is None or held_b is None:
        if held_a != held_b:
            yield _one("held", held_a is not None, held_b is not None)
    else:
        yield from _entries("held", held_a, held_b)
    machine_a, machine_b = dict(a["machine"]), dict(b["machine"])
    torch_a, torch_b = machine_a.pop("torch", None), machine_b.pop("torch", None)
    machine_a.pop("libraries", None), machine_b.pop("libraries", None)  # the packages say the same
    yield from _entries("machine", machine_a, machine_b)
    if isinstance(torch_a, dict) and isinstance(torch_b, dict):
        yield from _entries("machine.torch", torch_a, torch_b)
    one_key = a.get("environment_key") == b.get("environment_key")
    for role in sorted(set(a["processes"]) & set(b["processes"])):
        yield from _process(role, a["processes"][role], b["processes"][role], one_key)


def _words(value: Any) -> Any:
    return " ".join(value["words"]) if isinstance(value, dict) and "words" in value else value


def _entries(name: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Differing]:
    for key in sorted(set(a) | set(b)):
        if a.get(key) != b.get(key):
            yield _one(f"{name}.{key}", a.get(key), b.get(key))


def _process(role: str, a: dict[str, Any], b: dict[str, Any], one_key: bool) -> Iterator[Differing]:
    """`one_key`: whether digests of environment values can be compared; else only which variables were read."""
    for key, by in (("files", "path"), ("loaded", "name")):
        left, right = ({str(e[by]): e["digest"] for e in one[key]} for one in (a, b))
        names = [name for name in sorted(set(left) | set(right)) if left.get(name) != right.get(name)]
        if names:
            yield _one(f"processes/{role}/{key}", *(_of(side, names) for side in (left, right)))
    names = [n for n in sorted(set(a["environment"]) | set(b["environment"]))
             if (a["environment"].get(n) != b["environment"].get(n) if one_key
                 else (n in a["environment"]) != (n in b["environment"]))]  # fmt: skip
    if names:
        yield _one(f"processes/{role}/environment", *(_of(side["environment"], names) for side in (a, b)))
    if a["seeds"] != b["seeds"]:
        one, other = ([_seed(e) for e in side["seeds"]] for side in (a, b))
        only_a, only_b = set(one) - set(other), set(other) - set(one)
        yield _one(
            f"processes/{role}/seeds",
            [seed for seed in one if seed in only_a] or one,
            [seed for seed in other if seed in only_b] or other,
        )


def _of(side: dict[str, str], names: list[str]) -> dict[str, str]:
    return {name: side.get(name, MISSING) for name in names}


def _seed(entry: dict[str, Any]) -> str:
    value = "without a seed" if entry["unseeded"] else entry["seed"] if entry["seed"] is not None else entry["digest"]
    return f"{entry['generator']} {value}" + (f" ({entry['at']})" if entry["at"] else "")


def _one(path: str, a: Any, b: Any, *, rules: str = "") -> Differing:
    """`rules`: of which group the rule is to be, instead of the path's own."""
    rule = rule_for(f"{rules}.{path.partition('.')[2]}" if rules else path)
    return Differing(path, a, b, rule.rank, rule.changes)


def start_differences(a: dict[str, Any], b: dict[str, Any], drawn_from: tuple[str, ...]) -> Iterator[Differing]:
    """What two runs held before their receipts began: models, and those of the generators that stayed unseeded."""
    starts = [one["circumstances"].get("start") for one in (a, b)]
    if any(start is None for start in starts):
        return
    models = [[f"{one['model']} {one['digest'][:8]}" for one in start["models"]] for start in starts]
    if models[0] != models[1]:
        only = [[one for one in side if one not in other] for side, other in (models, models[::-1])]
        yield _one("start.models", *(", ".join(side) or MISSING for side in only))
    states = [start["generators"] for start in starts]
    names = [name for name in drawn_from if states[0].get(name) != states[1].get(name)]
    if names:
        yield _one("start.generators", *(_of(side, names) for side in states))
