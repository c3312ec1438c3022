"""Torch's generators: seeding and creation. Their draws are operators, recorded where operators are."""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, wrap_attribute, wrap_builtin_method
from samerun.record.watching.recorder import Recorder


def install_torch_random(recorder: Recorder, torch: Any) -> None:
    """Wrap `manual_seed`, `seed`, `set_rng_state`, and the methods of `torch.Generator`."""
    pinned = recorder.config.pins
    kinds = {pin.split("@")[0] for pin in pinned}
    if pins.TORCH in pinned:
        torch.default_generator.manual_seed(pins.pinned_seed("torch"))

    def wrap_manual_seed(original: Any) -> Any:
        def manual_seed(seed: Any) -> Any:
            recorder.emit_host_event(f.SEED, "torch", inputs=_seed_to_uint64(seed))
            if pins.EXTRA in kinds and recorder.is_pinned_here(pins.EXTRA):
                return torch.default_generator
            return original(seed)

        return manual_seed

    def wrap_system_seed(original: Any) -> Any:
        def seed() -> int:
            recorder.emit_host_event(f.SEED, "torch", flags=f.UNSEEDED)
            if pins.TORCH in pinned:
                value = pins.pinned_seed("torch")
                torch.default_generator.manual_seed(value)
                return value
            return int(original())

        return seed

    def wrap_set_rng_state(original: Any) -> Any:
        def set_rng_state(new_state: Any) -> Any:
            if sites.called_by_torch():
                return original(new_state)
            recorder.thread.inside_samerun += 1
            try:
                bits = xxh3_64_intdigest(bytes(new_state.cpu().numpy())) if new_state.numel() else 0
            finally:
                recorder.thread.inside_samerun -= 1
            recorder.emit_host_event(f.SEED, "torch", inputs=bits)
            return original(new_state)

        return set_rng_state

    for owner in (torch, torch.random):
        wrap_attribute(owner, "manual_seed", wrap_manual_seed)
        wrap_attribute(owner, "seed", wrap_system_seed)
        wrap_attribute(owner, "set_rng_state", wrap_set_rng_state)
    _watch_torch_generators(recorder, torch)


def _watch_torch_generators(recorder: Recorder, torch: Any) -> None:
    """Watch `torch.Generator` in the type itself, but for torch's own generators of each device."""

    def is_default_generator(generator: Any) -> bool:
        return generator is torch.default_generator or any(each is generator for each in torch.cuda.default_generators)

    def wrap_making(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if getattr(type(self), "__init__") is not plain.__init__:  # a subclass's calls this: no arguments then
                original(self, *args, **kwargs)
            recorder.emit_host_event(f.CREATE, "torch.Generator", inputs=1, user_only=True)
            recorder.remember_program_generator(self)

        return __init__

    def wrap_manual_seed(original: Any) -> Any:
        def manual_seed(self: Any, *args: Any, **kwargs: Any) -> Any:
            seeded = original(self, *args, **kwargs)
            if not is_default_generator(self):
                recorder.emit_host_event(f.SEED, "torch.Generator", inputs=_seed_to_uint64(self.initial_seed()))
            return seeded

        return manual_seed

    def wrap_system_seed(original: Any) -> Any:
        def seed(self: Any) -> Any:
            if is_default_generator(self):
                return original(self)
            recorder.emit_host_event(f.SEED, "torch.Generator", flags=f.UNSEEDED)
            if recorder.is_pinned_here(pins.TORCH_GENERATOR):
                manual_seed(self, pins.pinned_seed("torch-generator"))
                return self.initial_seed()
            return original(self)

        return seed

    plain = torch._C.Generator
    manual_seed = vars(plain)["manual_seed"]
    wrap_builtin_method(plain, "__init__", wrap_making)
    wrap_builtin_method(plain, "manual_seed", wrap_manual_seed)
    wrap_builtin_method(plain, "seed", wrap_system_seed)


def _seed_to_uint64(seed: Any) -> int:
    try:
        return int(seed) & 0xFFFFFFFFFFFFFFFF
    except (TypeError, ValueError):
        return 0


INTERCEPTOR = Interceptor("torch-random", "torch", install_torch_random)
