"""Read the switches inside the user's program. Called by the bootstrap `sitecustomize` for `samerun doctor`."""

from __future__ import annotations

import atexit
import json
import os
import sys
from dataclasses import asdict
from types import ModuleType
from typing import Any

from samerun.base.hooks import PostImportHooks

VARIABLE = "SAMERUN_SURVEY"
"""JSON: where the answer goes, and the arguments of `survey()`."""
AT_END = ".end"
"""The suffix of an answer that was given when the program ended, which it may have done by failing."""

_later = PostImportHooks()


def start() -> None:
    """Answer at the end of the first optimizer step, and end there; else when the program ends."""
    request = json.loads(os.environ[VARIABLE])
    pid = os.getpid()

    def hook(module: ModuleType) -> None:
        def first_step(*_: Any) -> None:
            if write_survey_once(request, "first optimizer step"):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)

        module.register_optimizer_step_post_hook(first_step)

    _later.call_now_or_after_import("torch.optim.optimizer", hook)
    _later.install()
    if not _is_child_else_mark_begun():
        atexit.register(lambda: os.getpid() == pid and write_survey_once(request, "end of the program", AT_END))


def _is_child_else_mark_begun() -> bool:
    """Return whether the program started this process, whose end is not the program's; mark the first process."""
    if os.environ.get("SAMERUN_SURVEY_BEGUN"):
        return True
    os.environ["SAMERUN_SURVEY_BEGUN"] = str(os.getpid())
    return False


def write_survey_once(request: dict[str, Any], moment_in_words: str, suffix: str = ".json") -> bool:
    """Write what is in force, unless another process has; return whether this one wrote it."""
    from samerun.base.machine import collect_machine_facts
    from samerun.control.determinism.survey import survey

    found = {
        "read_at": moment_in_words,
        "switches": [asdict(one) for one in survey(**request["policy"])],
        "machine": collect_machine_facts(),
    }
    path = os.path.splitext(request["answer"])[0] + suffix
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(found, file)
    try:
        os.link(part, path)  # unlike a rename, never replaces an answer that is there
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        os.replace(part, path)
    return True
