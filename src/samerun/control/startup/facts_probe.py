"""Note what is in force inside the user's program. Called by the bootstrap `sitecustomize` for a receipt."""

from __future__ import annotations

import atexit
import json
import os
from types import ModuleType
from typing import Any

from samerun.base.hooks import PostImportHooks

VARIABLE = "SAMERUN_FACTS"
"""The folder into which each process writes `<process id>.facts.json`."""

_later = PostImportHooks()


def start() -> None:
    """Write the facts at the end of the first optimizer step; else when the program ends."""
    folder, pid = os.environ[VARIABLE], os.getpid()
    written: list[bool] = []

    def write(read_at: str) -> None:
        # A forked child has the hooks too: what is in force there is what was in force in its parent.
        if written or os.getpid() != pid or not os.path.isdir(folder):
            return
        written.append(True)
        try:
            _write_facts(os.path.join(folder, f"{pid}.facts.json"), read_at)
        except Exception:  # the receipt says then that it was read from outside; the program goes on
            return

    def hook(module: ModuleType) -> None:
        # Not taken away after the first step: torch is going through its hooks just then.
        def first_step(*_: Any) -> None:
            write("first optimizer step")

        module.register_optimizer_step_post_hook(first_step)

    _later.call_now_or_after_import("torch.optim.optimizer", hook)
    _later.install()
    atexit.register(write, "end of the program")


def _write_facts(path: str, moment_in_words: str) -> None:
    """Write the facts about this process, as they are now, as JSON."""
    from samerun.control.determinism.survey import collect_process_facts

    found = collect_process_facts(moment_in_words)
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(path + ".part", path)
