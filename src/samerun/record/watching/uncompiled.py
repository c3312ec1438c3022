"""Keep torch.compile from compiling the recorder itself. Imports torch."""

from __future__ import annotations

from typing import Any

import torch


class Uncompiled:
    """What a dispatch mode of the recorder has in common: compiled programs stay compiled under it."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first operator


def leave_alone(*functions: Any) -> None:
    """torch.compile leaves these functions, and all that they call, as they are."""
    try:
        frames: Any = torch._C._dynamo.eval_frame
        never = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for function in functions:
            frames.set_code_exec_strategy(function.__code__, never)
    except (AttributeError, TypeError):
        pass  # another torch: the compiler then takes the recorder for the user's code and gives up on it
