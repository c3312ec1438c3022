"""How many inputs a fuzzer makes, and from which seed."""

from __future__ import annotations

import argparse


def count_and_seed(description: str) -> tuple[int, int]:
    """From the command line: `--count`, 20,000 if it is not given, and `--seed`, 0."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    return options.count, options.seed
