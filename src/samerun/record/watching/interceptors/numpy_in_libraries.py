"""Libraries that draw from NumPy's global generator past the functions of `numpy.random`.

scikit-learn and SciPy ask `check_random_state` for a generator. Where none is given, it is the object behind
`numpy.random`, whose draws libraries make for themselves: that it was taken is what is noted.
"""

from __future__ import annotations

from typing import Any

from samerun.record.digests.rng_digests import global_generator, numpy_state_digest
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder

NAME = "check_random_state"


def install(recorder: Recorder, module: Any) -> None:
    """Watch a module's `check_random_state`."""
    shared = global_generator()

    def checking(original: Any) -> Any:
        def check_random_state(*args: Any, **kwargs: Any) -> Any:
            given = original(*args, **kwargs)
            if given is shared:
                note(recorder, shared)
            return given

        return check_random_state

    if shared is not None:
        replace(module, NAME, checking)


def install_distributions(recorder: Recorder, module: Any) -> None:
    """SciPy's distributions take the generator when they are made, and draw from it in `rvs`."""
    shared = global_generator()

    def drawing(original: Any) -> Any:
        def rvs(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("random_state") is None and getattr(self, "_random_state", None) is shared:
                note(recorder, shared)
            return original(self, *args, **kwargs)

        return rvs

    if shared is not None:
        replace(module.rv_generic, "rvs", drawing)


def note(recorder: Recorder, generator: Any) -> None:
    if not recorder.thread.inside and not recorder.stopped:
        recorder.draw("numpy", NAME, lambda: numpy_state_digest(generator.get_state(legacy=False)))


IN_SCIKIT_LEARN = Interceptor("numpy-in-scikit-learn", "sklearn.utils.validation", install)
IN_SCIPY = Interceptor("numpy-in-scipy", "scipy._lib._util", install)
IN_DISTRIBUTIONS = Interceptor("numpy-in-distributions", "scipy.stats._distn_infrastructure", install_distributions)
