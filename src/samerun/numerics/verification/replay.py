"""Run calls of operators again in this process, which was started to compute with other instructions.

    python -m samerun.numerics.verification.replay CALLS ANSWER

Reads what `calls.encode_calls` made, and writes for each call what it gives in plain torch and inside portable().
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from samerun.numerics.dispatch.calls import decode_calls, rerun_outcome


def main(calls_path: str, answer_path: str) -> None:
    calls = decode_calls(torch.load(calls_path, weights_only=True))
    outcomes = [[rerun_outcome(call, False), rerun_outcome(call, True)] for call in calls]
    answer = {"capability": torch.backends.cpu.get_cpu_capability(), "outcomes": outcomes}
    Path(answer_path).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
