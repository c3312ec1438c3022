"""Every variation, in the order in which they are tried and reported."""

from __future__ import annotations

from samerun.base.errors import SamerunError
from samerun.check.plan import Variation
from samerun.check.variations import (
    address_layout,
    allocator,
    batch_split,
    clock,
    cpu_capability,
    environment_noise,
    hash_seed,
    home,
    listing_order,
    locale,
    memory,
    process_start,
    rerun,
    resume,
    threads,
    timezone,
    umask,
    workers,
    working_directory,
    world_size,
)

VARIATIONS: tuple[Variation, ...] = (
    rerun.VARIATION,
    hash_seed.VARIATION,
    listing_order.VARIATION,
    memory.VARIATION,
    clock.VARIATION,
    locale.VARIATION,
    timezone.VARIATION,
    address_layout.VARIATION,
    allocator.VARIATION,
    environment_noise.VARIATION,
    working_directory.VARIATION,
    home.VARIATION,
    umask.VARIATION,
    threads.VARIATION,
    workers.VARIATION,
    batch_split.VARIATION,
    process_start.VARIATION,
    world_size.VARIATION,
    resume.VARIATION,
    cpu_capability.VARIATION,
)
GROUPS = tuple(dict.fromkeys(v.group for v in VARIATIONS if v.group != v.name))


def choose(text: str) -> tuple[Variation, ...]:
    """The variations that `--vary` names: names or groups, `all`, `none`; in table order.

    Raises SamerunError for a name that is neither.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["none"]:
        return ()
    chosen: set[str] = set()
    for word in words:
        names = [v.name for v in VARIATIONS if word in (v.name, v.group, "all")]
        if not names:
            known = ", ".join([v.name for v in VARIATIONS] + list(GROUPS))
            raise SamerunError(
                f"--vary {text}: there is no variation {word!r}.", hint=f"There are: {known}, all, none."
            )
        chosen.update(names)
    if not words:
        raise SamerunError("--vary: no variation is named.", hint="Write --vary none to vary nothing.")
    return tuple(v for v in VARIATIONS if v.name in chosen)
