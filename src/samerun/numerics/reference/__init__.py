"""The numerical specification as slow, obvious NumPy: one rounding a line. It also serves without the library."""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A NumPy array, or a scalar where all of one was reduced: NumPy's types have no word for both."""
