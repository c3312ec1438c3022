"""Start watching this process, then hand over to the sitecustomize that would have run without us."""

import os
import sys


def _samerun_begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    # The module of this name that stands next on the path, if any, must run as if we were not here.
    import importlib.machinery
    import importlib.util

    try:
        if os.environ.get("SAMERUN_WATCH"):
            try:
                from samerun.record.start import start

                start()
            except ModuleNotFoundError as error:
                if error.name not in ("samerun", "samerun.record", "xxhash"):
                    raise  # else: an interpreter that does not have samerun runs unwatched
    finally:
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)


_samerun_begin()
del _samerun_begin
