"""Hostile checkpoints: each is loaded, or refused with a CheckpointError.

    python tests/fuzz/fuzz_checkpoints.py [--count 20000] [--seed 0]

Changes of the bytes, and changes of the values with digests that are made to fit, as whoever writes one can.
"""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import numpy as np
import torch
from fuzz_options import count_and_seed

import samerun
from samerun.base.errors import CheckpointError, UnfitStateError
from samerun.control.streams.stream import stream
from samerun.data import DataLoader
from samerun.data.checkpoint_file import digest_plain_value


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.full((3,), float(at))


def make_parts() -> dict[str, Any]:
    """A small training with everything in it."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.rand(4, 3)).sum().backward()
    optimizer.step()
    return {
        "model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2),
        "scaler": torch.amp.GradScaler("cpu"), "loader": DataLoader(Samples(), 4, shuffle=True),
    }  # fmt: skip


def make_checkpoint(folder: Path) -> bytes:
    samerun.seed_everything(1)
    np.random.rand(), stream("noise").numpy.random(), stream("own", rank="distinct").torch
    path = folder / "good.pt"
    samerun.checkpoint.save(path, extra={"step": 3, "note": ["x", (1, 2), {4}]}, **make_parts())
    return path.read_bytes()


def values(chance: random.Random) -> Any:
    """Something that torch.load takes and that may stand where it should not."""
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    nested: Any = ["x"]
    for _ in range(40):
        nested = [nested, nested]
    shadowed = OrderedDict(a=1)
    shadowed.items = 3  # type: ignore[method-assign, assignment]
    with_attribute = torch.nn.Parameter(torch.ones(2))
    with_attribute.detach = "x"  # type: ignore[method-assign, assignment]
    kinds: list[Any] = [
        None, True, 0, -1, 7, 2**31, 2**64, 2**70, 1 << 20000, 1.5, float("nan"), 1j, "", "x", "\x1b[2J", "\ud800",
        b"a", (), [], {}, set(), [[]], {"": {}}, {1: 2}, {(1, 2): 3}, {"seed": "x"}, OrderedDict(), torch.float16,
        torch.device("cpu"), torch.Size([2]), torch.tensor(1), torch.tensor([]), torch.ones(3), torch.ones(2, 3),
        torch.ones(1).expand(10**12), torch.ones(3, dtype=torch.uint8), torch.zeros(5056, dtype=torch.uint8),
        torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex64), torch.empty(2, device="meta"),
        torch.ones(2).conj(), torch.nn.Parameter(torch.ones(1)), cyclic, nested, shadowed, with_attribute,
        ["x"] * 700, [2**40] * 625, list(range(1000)), {str(number): number for number in range(100)},
    ]  # fmt: skip
    return chance.choice(kinds)


def change(whole: Any, value: Any, chance: random.Random) -> None:
    """Replace, remove or add one part somewhere inside."""
    while isinstance(value, (dict, list)) and isinstance(whole, dict):  # an earlier change may have put anything here
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chance.choice(keys)
        inner = value[key]
        if isinstance(inner, tuple) and chance.random() < 0.8:
            inner = value[key] = list(inner)
        if isinstance(inner, (dict, list)) and inner and chance.random() < 0.85:
            value = inner
            continue
        draw = chance.random()
        if draw < 0.15:
            del value[key]
        elif draw < 0.25 and isinstance(value, dict):
            value[values(chance) if draw < 0.2 else str(key)] = value.pop(key)
        elif draw < 0.35:
            value[key] = whole[chance.choice(list(whole))]
        else:
            value[key] = values(chance)
        return


def changed_values(good: bytes, path: Path, chance: random.Random) -> None:
    path.write_bytes(good)
    content = torch.load(path, weights_only=True)
    for _ in range(chance.randint(1, 2)):
        try:
            change(content["parts"], content["parts"] if chance.random() < 0.97 else content, chance)
        except (TypeError, KeyError, AttributeError, IndexError):
            continue
    try:
        parts = content["parts"]
        content["digests"] = {name: digest_plain_value(value, max_bytes=1 << 26) for name, value in parts.items()}
    except Exception:  # the reader has to see for itself what cannot be digested
        parts = content.get("parts")
        content["digests"] = dict.fromkeys(parts if isinstance(parts, dict) else (), "0" * 32)
    try:
        torch.save(content, path)
    except Exception:  # nobody could have written it either
        path.write_bytes(good[: chance.randrange(len(good))])


def changed_bytes(good: bytes, path: Path, chance: random.Random) -> None:
    raw = bytearray(good)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw))
        end = min(len(raw), at + chance.choice([1, 1, 4, 40]))
        raw[at:end] = chance.choice([bytes(end - at), chance.randbytes(end - at), b"", bytes(raw[at:end]) * 2])
    path.write_bytes(bytes(raw))


def load(path: Path, parts: dict[str, Any]) -> bool:
    """Whether it was loaded. What is refused has changed nothing."""
    before = {name: digest_plain_value(part.state_dict()) for name, part in parts.items()}
    random_before = digest_plain_value(samerun.state_dict())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samerun.checkpoint.load(path, **parts)
    except CheckpointError as error:
        str(error)
        if not isinstance(error, UnfitStateError) or ": rng: " in error.message:
            assert digest_plain_value(samerun.state_dict()) == random_before, f"the generators moved: {error}"
            for name, part in parts.items():
                assert digest_plain_value(part.state_dict()) == before[name], f"{name} was changed: {error}"
        return False
    return True


def run(count: int, seed: int) -> tuple[int, int]:
    """Returns how many were loaded, and how many refused."""
    chance = random.Random(seed)
    taken = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good, parts = make_checkpoint(folder), make_parts()
        assert load(folder / "good.pt", parts)
        path = folder / "hostile.pt"
        for number in range(count):
            (changed_values if chance.random() < 0.7 else changed_bytes)(good, path, chance)
            try:
                loaded = load(path, parts)
            except Exception:
                Path(f"crash-checkpoint-{seed}-{number}.pt").write_bytes(path.read_bytes())
                raise
            taken += loaded
            if loaded:
                parts = make_parts()
    return taken, count - taken


def main() -> None:
    taken, refused = run(*count_and_seed(__doc__ or ""))
    print(f"{taken} checkpoints were loaded, {refused} refused")


if __name__ == "__main__":
    main()
