"""`torch.compile`: where a program asks for it. With the pin `eager` it compiles nothing."""

from __future__ import annotations

from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, torch: Any) -> None:
    eager = pins.EAGER in recorder.config.pins

    def asking(original: Any) -> Any:
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            backend = str(kwargs.get("backend", "inductor"))
            recorder.host(f.FACT, "torch.compile", value=backend.encode(), user_only=True)
            if eager:
                return (lambda function: function) if model is None else model
            return original(model, *args, **kwargs)

        return compile

    replace(torch, "compile", asking)


INTERCEPTOR = Interceptor("compile-calls", "torch", install)
