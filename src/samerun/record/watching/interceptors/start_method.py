"""How `multiprocessing` starts processes: varied where the program does not say."""

from __future__ import annotations

from typing import Any

from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, context: Any) -> None:
    """Replace the context that stands for Python's own choice; what a program sets itself stays."""
    wanted = recorder.config.start_method
    if wanted is None:
        return
    default = context._default_context
    default._default_context = context._concrete_contexts[wanted]


INTERCEPTOR = Interceptor("start-method", "multiprocessing.context", install)
