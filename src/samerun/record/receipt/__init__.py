"""Receipts: one JSON file that records how a run was made and what it computed."""

from samerun.base.supervise import new_threads_with_signals_blocked

with new_threads_with_signals_blocked():
    import numpy  # noqa: F401  its linear algebra library starts threads, and this package supervises programs
