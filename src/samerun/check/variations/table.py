"""Every variation, in the order in which they are tried and reported."""

from __future__ import annotations

from samerun.base.errors import SamerunError
from samerun.base.text import did_you_mean_prefix_or_empty
from samerun.check.plan import Variation
from samerun.check.variations import computation, environment, file_system, memory, processes, reruns

VARIATIONS: tuple[Variation, ...] = (
    reruns.RERUN,
    environment.HASH_SEED,
    file_system.LISTING_ORDER,
    memory.MEMORY,
    environment.CLOCK,
    environment.LOCALE,
    environment.TIMEZONE,
    memory.ADDRESS_LAYOUT,
    memory.ALLOCATOR,
    environment.ENVIRONMENT_NOISE,
    file_system.WORKING_DIRECTORY,
    file_system.HOME,
    file_system.UMASK,
    computation.THREADS,
    processes.WORKERS,
    computation.BATCH_SPLIT,
    computation.BATCH,
    processes.PROCESS_START,
    processes.WORLD_SIZE,
    reruns.RESUME,
    computation.CPU_CAPABILITY,
)
GROUPS = tuple(dict.fromkeys(v.group for v in VARIATIONS if v.group != v.name))


def parse_vary_option(text: str) -> tuple[Variation, ...]:
    """The variations that `--vary` names: names or groups, `all`, `none`; in table order.

    Raises SamerunError for a name that is neither.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words == ["none"]:
        return ()
    chosen: set[str] = set()
    for word in words:
        names = [v.name for v in VARIATIONS if word in (v.name, v.group) or (word == "all" and not v.only_by_name)]
        if not names:
            known = [v.name for v in VARIATIONS]
            raise SamerunError(
                f"--vary {text}: there is no variation {word!r}.",
                hint=f"{did_you_mean_prefix_or_empty(word, [*known, *GROUPS])}There are: {', '.join(known)}; groups: "
                f"{', '.join(GROUPS)}, all, none.",
            )
        chosen.update(names)
    if not words:
        raise SamerunError("--vary: no variation given.", hint="Write --vary none to vary nothing.")
    return tuple(v for v in VARIATIONS if v.name in chosen)
