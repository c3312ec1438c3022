"""Torch's generators: seeding and creation. Their draws are operators, recorded where operators are."""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record import format as f
from samerun.record import pins, sites
from samerun.record.interceptor import Interceptor, replace
from samerun.record.recorder import Recorder


def install(recorder: Recorder, torch: Any) -> None:
    """Wrap `manual_seed`, `seed`, `set_rng_state`, and give `torch.Generator` a watched subclass."""
    pinned = recorder.config.pins
    kinds = {pin.split("@")[0] for pin in pinned}
    if pins.TORCH in pinned:
        torch.default_generator.manual_seed(pins.fixed_seed("torch"))

    def manual(original: Any) -> Any:
        def manual_seed(seed: Any) -> Any:
            recorder.host(f.SEED, "torch", inputs=_bits(seed))
            if pins.EXTRA in kinds and recorder.pinned(pins.EXTRA):
                return torch.default_generator
            return original(seed)

        return manual_seed

    def from_system(original: Any) -> Any:
        def seed() -> int:
            recorder.host(f.SEED, "torch", flags=f.UNSEEDED)
            if pins.TORCH in pinned:
                value = pins.fixed_seed("torch")
                torch.default_generator.manual_seed(value)
                return value
            return int(original())

        return seed

    def restore(original: Any) -> Any:
        def set_rng_state(new_state: Any) -> Any:
            if sites.given_back_by_torch():
                return original(new_state)
            recorder.thread.inside += 1
            try:
                bits = xxh3_64_intdigest(bytes(new_state.cpu().numpy())) if new_state.numel() else 0
            finally:
                recorder.thread.inside -= 1
            recorder.host(f.SEED, "torch", inputs=bits)
            return original(new_state)

        return set_rng_state

    for owner in (torch, torch.random):
        replace(owner, "manual_seed", manual)
        replace(owner, "seed", from_system)
        replace(owner, "set_rng_state", restore)
    _watch_generators(recorder, torch, pinned)


def _watch_generators(recorder: Recorder, torch: Any, pinned: tuple[str, ...]) -> None:
    plain = torch._C.Generator

    class Kind(type(plain)):  # type: ignore[misc]
        """Makes `isinstance` and `==` treat the subclass and torch's own class as one."""

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, plain)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, plain)

        def __eq__(cls, other: object) -> bool:
            return other is cls or other is plain

        def __hash__(cls) -> int:
            return hash(plain)

    class Generator(plain, metaclass=Kind):  # type: ignore[misc,valid-type]
        __doc__ = plain.__doc__

        def __init__(self, device: Any = "cpu") -> None:
            recorder.host(f.CREATE, "torch.Generator", inputs=1, user_only=True)
            recorder.note_generator(self)

        def manual_seed(self, seed: Any) -> Any:
            recorder.host(f.SEED, "torch.Generator", inputs=_bits(seed))
            super().manual_seed(seed)
            return self

        def seed(self) -> int:
            recorder.host(f.SEED, "torch.Generator", flags=f.UNSEEDED)
            if recorder.pinned(pins.TORCH_GENERATOR):
                super().manual_seed(pins.fixed_seed("torch-generator"))
                return int(self.initial_seed())
            return int(super().seed())

    Generator.__module__, Generator.__qualname__ = "torch", "Generator"
    torch.Generator = Generator


def _bits(seed: Any) -> int:
    try:
        return int(seed) & 0xFFFFFFFFFFFFFFFF
    except (TypeError, ValueError):
        return 0


INTERCEPTOR = Interceptor("torch-random", "torch", install)
