"""What is left out when two runs are compared that are not meant to do the same everywhere.

With another number of DataLoader workers, the same batches are made elsewhere: what counts is the batches
and what is made of them. A scope names what is left out.
"""

from __future__ import annotations

import re

WORKERS = "workers"
"""What DataLoaders do, in worker processes and in the main one: the loading of data."""
CHILDREN = "children"
"""Child processes: started in another way, they run through the program's file again, or not."""
RANKS = "ranks"
"""All but what rank 0's model holds after each step and at the end."""

ROWS = "rows"
"""All but what is computed of each sample, whatever batch it comes in."""


def compared(role: str, scope: tuple[str, ...]) -> bool:
    """Whether a process is compared."""
    if WORKERS in scope and re.search(r"/loader\d+\.worker\d+", role):
        return False
    if CHILDREN in scope and "/" in role:
        return False
    return RANKS not in scope or role in ("main", "rank0")
