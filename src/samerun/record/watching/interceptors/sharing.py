"""Where memory is shared with others than torch, for `samerun check --double`: NumPy, DLPack, bare addresses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder

GIVEN = ("numpy", "__array__", "__dlpack__", "data_ptr")
"""Methods of a tensor that give its memory away."""
TAKEN = ("from_numpy", "frombuffer", "as_tensor", "asarray", "from_dlpack")
"""Functions of torch that make a tensor of memory that others have."""


def install(recorder: Recorder, torch: Any) -> None:
    if recorder.doubling is None:
        return
    doubling, tensor_type = recorder.doubling, torch.Tensor

    def note(tensor: Any, how: str) -> None:
        if recorder.thread.inside or recorder.stopped or torch.compiler.is_compiling():
            return
        recorder.thread.inside += 1
        try:
            site = sites.host_site()
            writer = recorder.writer or recorder.open()
            if writer is not None and isinstance(tensor, tensor_type):
                place = writer.intern_location(site[0], site[1], recorder.thread.module) if site[1] else 0
                doubling.share(tensor, how, place)
        except Exception as error:
            recorder.stop(f"samerun's recorder failed at {how}: {error!r}")
        finally:
            recorder.thread.inside -= 1

    def giving(name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def give(self: Any, *args: Any, **kwargs: Any) -> Any:
                # Libraries, and samerun itself, ask for addresses all the time, and only to read.
                if name != "data_ptr" or sites.kind_of(sys._getframe(1).f_code) == sites.USER:
                    note(self, f"Tensor.{name}()")
                return original(self, *args, **kwargs)

            return give

        return make

    def taking(name: str) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def take(*args: Any, **kwargs: Any) -> Any:
                made = original(*args, **kwargs)
                if args and not isinstance(args[0], (tensor_type, list, tuple, int, float)):
                    note(made, f"torch.{name}()")
                return made

            return take

        return make

    for name in GIVEN:
        replace(tensor_type, name, giving(name))
    for name in TAKEN:
        replace(torch, name, taking(name))


INTERCEPTOR = Interceptor("sharing", "torch", install)
