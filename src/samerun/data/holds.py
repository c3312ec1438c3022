"""Hold the state of a global generator, and put it back where it stood: as memory, or else the library's own way.

A state is taken and put back with every batch that is loaded in the main process.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from samerun.data.generator_memory import numpy_memory, present_bit_generator, python_memory


class PythonHold:
    def __init__(self) -> None:
        self._generator: Any = random._inst
        self._memory = python_memory()
        if self._memory is None:
            self._state = random.getstate()
        else:
            self._words = bytes(self._memory)
            self._normal = getattr(self._generator, "gauss_next")

    def put_back(self) -> None:
        if self._memory is None:
            random.setstate(self._state)
        else:
            self._memory[:] = self._words
            self._generator.gauss_next = self._normal


class NumpyHold:
    def __init__(self) -> None:
        self._bit_generator = present_bit_generator()
        self._memory = numpy_memory()
        if self._memory is None:
            self._state: Any = np.random.get_state(legacy=False)
        else:
            words, normal = self._memory
            self._words, self._normal = bytes(words), bytes(normal)

    def put_back(self) -> None:
        if present_bit_generator() is not self._bit_generator:
            random_of_numpy: Any = np.random  # its stubs lack the function
            random_of_numpy.set_bit_generator(self._bit_generator)
        if self._memory is None:
            np.random.set_state(self._state)
        else:
            words, normal = self._memory
            words[:], normal[:] = self._words, self._normal


class TorchHold:
    def __init__(self) -> None:
        self._state = torch.default_generator.get_state()

    def put_back(self) -> None:
        torch.default_generator.set_state(self._state)


HOLDS: dict[str, Any] = {"python": PythonHold, "numpy": NumpyHold, "torch": TorchHold}
"""By kind, in the order in which they are put back."""
