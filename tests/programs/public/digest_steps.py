"""Run a program as `python` does, and digest all parameters after every optimizer step, without samerun.

python digest_steps.py SCRIPT [ARGS...]; DIGEST_STEPS names the file that gets one line a step.
"""

import hashlib
import os
import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

MAIN = os.getpid()


def digest_step(optimizer: torch.optim.Optimizer, _arguments: object, _names: object) -> None:
    if os.getpid() != MAIN:
        return
    digest = hashlib.sha256()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            digest.update(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    steps.write(f"{digest.hexdigest()}\n")
    steps.flush()


if __name__ == "__main__":
    steps = open(os.environ.pop("DIGEST_STEPS"), "w")
    register_optimizer_step_post_hook(digest_step)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
