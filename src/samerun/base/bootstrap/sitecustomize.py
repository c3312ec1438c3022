"""Start samerun in this process, then hand over to the sitecustomize that would have run without us."""

import _signal  # type: ignore[import-not-found]  # `signal` itself imports much
import os
import sys

_SAMERUN_STARTS = (
    ("SAMERUN_PRELOAD", "samerun.record.watching.preloaded.serve"),
    ("SAMERUN_WATCH", "samerun.record.watching.start"),
    ("SAMERUN_HOLD", "samerun.control.startup.deterministic_start"),
    ("SAMERUN_SURVEY", "samerun.control.startup.survey_probe"),
    ("SAMERUN_FACTS", "samerun.control.startup.facts_probe"),
    ("SAMERUN_PORTABLE", "samerun.numerics.dispatch.portable"),
    ("SAMERUN_COST", "samerun.record.watching.cost_meter"),
)
"""Where the variable is set, the module's `start()` is called."""
_SAMERUN_ABSENT = ("samerun", "samerun.record", "samerun.control", "samerun.numerics", "xxhash")


def _samerun_start_then_chain() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    # The module of this name that stands next on the path, if any, must run as if we were not here.
    import importlib
    import importlib.machinery
    import importlib.util

    # KeyboardInterrupt in here would be exit code 1, which means "different": Ctrl-C ends the process by its signal.
    handler = _signal.getsignal(_signal.SIGINT)
    raises = handler is _signal.default_int_handler
    if raises:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        for variable, module in _SAMERUN_STARTS:
            if os.environ.get(variable):
                try:
                    start = importlib.import_module(module).start
                except ModuleNotFoundError as error:
                    if error.name not in _SAMERUN_ABSENT:
                        raise  # else: an interpreter that does not have samerun runs without it
                else:
                    start()
    finally:
        if raises:
            _signal.signal(_signal.SIGINT, handler)
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
        if spec is not None and spec.loader is not None:
            following = importlib.util.module_from_spec(spec)
            sys.modules["sitecustomize"] = following
            spec.loader.exec_module(following)


_samerun_start_then_chain()
del _samerun_start_then_chain
