"""The pin `generators`: a checkpoint holds every generator's state, whatever the program puts into it.

States are kept in a file of samerun's own at `torch.save` and given back at `torch.load`, so that a resumed
run draws on where the interrupted one stopped.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from samerun.record import pins
from samerun.record.interceptor import Interceptor, replace
from samerun.record.recorder import Recorder


def install(recorder: Recorder, torch: Any) -> None:
    path = recorder.config.generators
    if pins.GENERATORS not in recorder.config.pins or path is None:
        return
    save, load = torch.save, torch.load

    def states() -> dict[str, Any]:
        random, numpy = sys.modules.get("random"), sys.modules.get("numpy")
        return {
            "torch": torch.get_rng_state(),
            "own": [generator.get_state() for generator in recorder.own_generators],
            "python": random.getstate() if random is not None else None,
            "numpy": numpy.random.get_state() if numpy is not None else None,
        }

    def give_back(kept: dict[str, Any]) -> None:
        torch.set_rng_state(kept["torch"])
        for generator, state in zip(recorder.own_generators, kept["own"], strict=False):
            generator.set_state(state)
        random, numpy = sys.modules.get("random"), sys.modules.get("numpy")
        if random is not None and kept["python"] is not None:
            random.setstate(kept["python"])
        if numpy is not None and kept["numpy"] is not None:
            numpy.random.set_state(kept["numpy"])

    def quietly(call: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.thread.inside += 1
        try:
            return call(*args, **kwargs)
        finally:
            recorder.thread.inside -= 1

    def saving(original: Any) -> Any:
        def saved(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not recorder.thread.inside:
                quietly(lambda: save(states(), path))
            return result

        return saved

    def loading(original: Any) -> Any:
        def loaded(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not recorder.thread.inside and os.path.exists(path):
                quietly(lambda: give_back(load(path, weights_only=False)))
            return result

        return loaded

    replace(torch, "save", saving)
    replace(torch, "load", loading)


INTERCEPTOR = Interceptor("kept-generators", "torch", install)
