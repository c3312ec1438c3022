"""Run calls of operators again in this process, which was started to compute with other instructions.

    python -m samerun.numerics.verification.replay CALLS ANSWER

Reads what `calls.encode_calls` made, and writes for each call what it gives in plain torch and inside portable().
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from samerun.numerics.dispatch.calls import call_outcome, decode_calls


def main(calls: str, answer: str) -> None:
    found = decode_calls(torch.load(calls, weights_only=True))
    both = [[call_outcome(call, False), call_outcome(call, True)] for call in found]
    said = {"capability": torch.backends.cpu.get_cpu_capability(), "outcomes": both}
    Path(answer).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
