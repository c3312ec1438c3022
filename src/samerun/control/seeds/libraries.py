"""The global generators of Python, NumPy, Numba, CuPy, OpenCV, Polars, SentencePiece and TensorFlow."""

from __future__ import annotations

import ctypes
import random
from typing import Any

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.random_source import RandomSource, State, make_seed_only_source_refusing_restore

# Python's `random`: the module's own generator, with the normal number that `gauss` keeps back.


def _seed_python_global_generator(seed_64: int) -> None:
    random.seed(seed_64)


def _get_python_state() -> State:
    return random.getstate()


def _set_python_state(state: State) -> None:
    version, words, kept_gauss = state  # lists, if it went through JSON
    if kept_gauss is not None and not isinstance(kept_gauss, float):
        raise TypeError("the normal number that gauss() keeps is not a float")
    if max(words) >> 32:  # Python would truncate it
        raise ValueError("it holds a number of more than 32 bits")
    random.setstate((version, tuple(words), kept_gauss))


PYTHON = RandomSource("python", "", lambda: True, _seed_python_global_generator, _get_python_state, _set_python_state)


# NumPy's global generator (`numpy.random.rand` and the like; scikit-learn, SciPy and pandas default to it).
# `numpy.random.default_rng()` objects are not global: no tool can reach them; give each its own seed.


def _can_seed_numpy() -> bool:
    # NumPy 2 loads its numpy.random only when asked for, as here.
    return find_imported_module("numpy", "random") is not None


def _seed_numpy_global_generator(seed_64: int) -> None:
    random = get_imported_module("numpy").random
    kind = type(random.get_bit_generator())
    if kind.__name__ == "MT19937":
        random.seed([seed_64 & 0xFFFFFFFF, seed_64 >> 32])
    else:  # the user has installed another one, which `seed` refuses
        random.set_bit_generator(kind(seed_64))


def _get_numpy_state() -> State:
    return _arrays_to_lists(get_imported_module("numpy").random.get_state(legacy=False))


def _set_numpy_state(state: State) -> None:
    position = state["state"].get("pos")
    if position is not None and not 0 <= position <= 624:  # NumPy would read beyond its state
        raise ValueError(f"its position is {position!r}, which is not from 0 to 624")
    get_imported_module("numpy").random.set_state(state)


def _arrays_to_lists(value: Any) -> Any:
    """Arrays as lists: `torch.load(weights_only=True)` refuses arrays, NumPy takes lists back."""
    if isinstance(value, dict):
        return {key: _arrays_to_lists(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


NUMPY = RandomSource(
    "numpy", "numpy", _can_seed_numpy, _seed_numpy_global_generator, _get_numpy_state, _set_numpy_state
)


# Numba's own generators: `numpy.random` and `random` inside `@njit` code draw from these. Of the calling thread only:
# Numba keeps one pair per thread and gives no way to reach those of other threads.


_NUMBA_FUNCTIONS = ("rnd_seed", "rnd_get_state", "rnd_get_np_state_ptr", "rnd_get_py_state_ptr")


class _NumbaGenerator(ctypes.Structure):
    """`rnd_state_t` of Numba's _random.c. Numba's own `rnd_get_state` leaves out the normal number
    that is kept for the next call."""

    _fields_ = [
        ("index", ctypes.c_int),
        ("words", ctypes.c_uint * 624),
        ("has_gauss", ctypes.c_int),
        ("gauss", ctypes.c_double),
        ("is_initialized", ctypes.c_int),
    ]


def _can_seed_numba() -> bool:
    return (
        find_imported_module("numba") is not None
        and find_imported_module("numba._helperlib", *_NUMBA_FUNCTIONS) is not None
    )


def _get_numba_numpy_and_python_pointers() -> tuple[int, int]:
    helper = get_imported_module("numba._helperlib")
    return helper.rnd_get_np_state_ptr(), helper.rnd_get_py_state_ptr()


def _seed_numba_generators_of_this_thread(seed_64: int) -> None:
    for pointer, half in zip(
        _get_numba_numpy_and_python_pointers(), (seed_64 & 0xFFFFFFFF, seed_64 >> 32), strict=True
    ):
        get_imported_module("numba._helperlib").rnd_seed(pointer, half)


def _get_numba_state() -> State:
    return (
        [_read_numba_generator_state(pointer) for pointer in _get_numba_numpy_and_python_pointers()]
        if _is_numba_layout_known_or_undeclared()
        else None
    )


def _set_numba_state(state: State) -> None:
    if not _is_numba_layout_known_or_undeclared():
        raise TypeError(_NUMBA_NOTE)
    for pointer, saved in zip(_get_numba_numpy_and_python_pointers(), state, strict=True):
        index, words, has_gauss, gauss, is_initialized = saved
        generator = _NumbaGenerator(index, (ctypes.c_uint * 624)(*words), has_gauss, gauss, is_initialized)
        ctypes.memmove(pointer, ctypes.byref(generator), ctypes.sizeof(generator))


def _read_numba_generator_state(address: int) -> list[Any]:
    """Return the state of the generator at this address, as plain values."""
    generator = _NumbaGenerator.from_address(address)
    return [
        generator.index, list(generator.words), generator.has_gauss, generator.gauss, generator.is_initialized
    ]  # fmt: skip


def _is_numba_layout_known_or_undeclared() -> bool:
    declared = getattr(find_imported_module("numba.cpython.randomimpl"), "rnd_state_t", None)
    return declared is None or str(declared) == "{i32, [624 x i32], i32, double, i32}"


_NUMBA_NOTE = "samerun does not know the memory layout of this version of Numba's generators"
NUMBA = RandomSource(
    "numba",
    "numba",
    _can_seed_numba,
    _seed_numba_generators_of_this_thread,
    _get_numba_state,
    _set_numba_state,
    _NUMBA_NOTE,
)


# --- libraries that can be seeded but do not give the state of their generator ---


# CuPy's global generator (`cupy.random.rand` and the like), of the current device.


def _can_seed_cupy() -> bool:
    cupy = find_imported_module("cupy", "random", "is_available")
    return cupy is not None and bool(cupy.is_available())


def _seed_cupy_generator_of_current_device(seed_64: int) -> None:
    get_imported_module("cupy").random.seed(seed_64)


_CUPY_NOTE = "CuPy seeds its generator, but cuRAND does not give its state"
CUPY = make_seed_only_source_refusing_restore(
    "cupy", "cupy", available=_can_seed_cupy, seed=_seed_cupy_generator_of_current_device, note=_CUPY_NOTE
)


# OpenCV's generator (`cv2.randu`, `cv2.randn`, `cv2.kmeans`), of the calling thread.


def _can_seed_opencv() -> bool:
    return find_imported_module("cv2", "setRNGSeed") is not None


def _seed_imported_opencv_of_this_thread(seed_64: int) -> None:
    get_imported_module("cv2").setRNGSeed(seed_64 & 0x7FFFFFFF)  # a C int


_OPENCV_NOTE = "OpenCV seeds its generator, but does not give its state"
OPENCV = make_seed_only_source_refusing_restore(
    "opencv", "cv2", available=_can_seed_opencv, seed=_seed_imported_opencv_of_this_thread, note=_OPENCV_NOTE
)


# Polars' global generator (`sample`, `shuffle` without a seed of their own).


def _can_seed_polars() -> bool:
    return find_imported_module("polars", "set_random_seed") is not None


def _seed_polars_global_generator(seed_64: int) -> None:
    get_imported_module("polars").set_random_seed(seed_64)


_POLARS_NOTE = "Polars seeds its generator, but does not give its state"
POLARS = make_seed_only_source_refusing_restore(
    "polars", "polars", available=_can_seed_polars, seed=_seed_polars_global_generator, note=_POLARS_NOTE
)


# SentencePiece's generator (subword sampling: `encode(..., enable_sampling=True)`).


def _can_seed_sentencepiece() -> bool:
    return find_imported_module("sentencepiece", "set_random_generator_seed") is not None


def _seed_sentencepiece_global_generator(seed_64: int) -> None:
    get_imported_module("sentencepiece").set_random_generator_seed(seed_64 & 0x7FFFFFFF)  # it ignores 2**32-1


_SENTENCEPIECE_NOTE = "SentencePiece seeds its generator, but does not give its state"
SENTENCEPIECE = make_seed_only_source_refusing_restore(
    "sentencepiece", "sentencepiece", available=_can_seed_sentencepiece, seed=_seed_sentencepiece_global_generator,
    note=_SENTENCEPIECE_NOTE,
)  # fmt: skip


# TensorFlow's global seed, from which its random operators and `tf.data` shuffles take theirs.


def _can_seed_tensorflow() -> bool:
    return hasattr(getattr(find_imported_module("tensorflow", "random"), "random", None), "set_seed")


def _set_tensorflow_global_seed(seed_64: int) -> None:
    get_imported_module("tensorflow").random.set_seed(seed_64 & 0x7FFFFFFF)  # TensorFlow takes it modulo 2**31-1


_TENSORFLOW_NOTE = "TensorFlow takes a global seed, but gives no state: its streams live in its operators"
TENSORFLOW = make_seed_only_source_refusing_restore(
    "tensorflow", "tensorflow", available=_can_seed_tensorflow, seed=_set_tensorflow_global_seed, note=_TENSORFLOW_NOTE
)
