"""Wrap functions and methods of others so that a program meets objects of the types it would meet without us.

A function written in C is no method where it stands in a class (`converter = time.localtime` in `logging`), is
copied by reference, and is not looked into by `inspect` or by torch's compiler; a Python function in its place is.
Methods of a type written in C are replaced in the type itself: a subclass or another type in its place is met by
`type(x) is ...`, by C code that asks for the exact type, and by all who took the type before.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable
from types import BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, MethodType, ModuleType
from typing import Any

_wrap: Any
try:
    from samerun.base import _wrap  # type: ignore[attr-defined, no-redef]
except ImportError:  # it was not built, or for another Python
    _wrap = None

Undo = Callable[[], None]
_IN_C = (BuiltinFunctionType, MethodDescriptorType, ClassMethodDescriptorType)
_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE."""
_FLAGS_AT, _VECTORCALL_AT = (object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p) * at for at in (19, 48))
"""Where `tp_flags` and `tp_vectorcall` stand in PyTypeObject, the same since Python 3.8, counted in pointers."""


def make_wrapper_of_same_type(original: Any, function: Any) -> Any:
    """`function` as an object of the type of `original`, with its name and documentation.

    It is called as the original is: without `self` for one that is bound, with it for a method of a type.
    """
    try:
        functools.update_wrapper(function, original)
    except (AttributeError, TypeError):
        pass
    cls = type(original)
    if cls in _IN_C and _wrap is not None:
        try:
            return _wrap.wrap(original, function)
        except MemoryError:  # there is room for so many only
            pass
    if cls is ClassMethodDescriptorType:
        return classmethod(function)
    if cls is BuiltinFunctionType:
        return BuiltinFunctionStandIn(original, function)
    if cls is MethodType:
        return MethodType(_make_method_ignoring_self(function), original.__self__)
    return function


def _make_method_ignoring_self(function: Any) -> Any:
    def method(_: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    functools.update_wrapper(method, function)
    method.__code__ = method.__code__.replace(co_filename=function.__code__.co_filename)
    return method


class BuiltinFunctionStandIn:
    """Stands in for a function written in C where our C library was not built: it never becomes a method."""

    def __init__(self, original: Any, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self.__self__ = original.__self__
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]

    def __copy__(self) -> BuiltinFunctionStandIn:
        return self

    def __deepcopy__(self, memo: Any) -> BuiltinFunctionStandIn:
        return self

    def __reduce__(self) -> Any:
        name: str = self.__name__  # type: ignore[attr-defined]
        owner = self.__self__
        return name if owner is None or isinstance(owner, ModuleType) else (getattr, (owner, name))


def replace_method_in_type(cls: type, name: str, function: Any) -> Undo:
    """Put `function` in the place of a method of a type, also of one that Python does not let us change.

    What is returned puts the original back. Raises AttributeError if the type has no such method, TypeError if
    its memory is not as expected.
    """
    there = name in vars(cls)
    original = vars(cls)[name] if there else getattr(cls, name)
    replacement = make_wrapper_of_same_type(original, function)
    if name == "__init__":
        return _replace_init_slot(cls, replacement, original if there else None)
    methods = _writable_type_dict(cls)
    methods[name] = replacement
    _invalidate_type_caches(cls)

    def undo() -> None:
        if there:
            methods[name] = original
        else:
            del methods[name]
        _invalidate_type_caches(cls)

    return undo


def _writable_type_dict(cls: type) -> dict[str, Any]:
    """The dictionary behind the read-only view that `cls.__dict__` gives."""
    found: Any = gc.get_referents(vars(cls))
    if len(found) != 1 or type(found[0]) is not dict:
        raise TypeError(f"the dictionary of {cls!r} was not found")
    return found[0]


def _invalidate_type_caches(cls: type) -> None:
    """Python caches what it finds in types, and compiles it in."""
    forget = ctypes.PyDLL("python", handle=ctypes.pythonapi._handle).PyType_Modified
    forget.argtypes, forget.restype = (ctypes.py_object,), None
    forget(cls)


def _replace_init_slot(cls: type, replacement: Any, original: Any) -> Undo:
    """`__init__` has a slot in the type, which Python itself makes follow the attribute while the type may change.

    Types of newer Cython also have a function that makes objects past that slot: it is taken out.
    """
    flags, shortcut = (ctypes.c_size_t.from_address(id(cls) + at) for at in (_FLAGS_AT, _VECTORCALL_AT))
    if flags.value != cls.__flags__:
        raise TypeError(f"the flags of {cls!r} were not found")

    def change(to: Any, direct: int) -> None:
        immutable = flags.value & _IMMUTABLE
        flags.value &= ~_IMMUTABLE
        try:
            if to is None:
                type.__delattr__(cls, "__init__")
            else:
                type.__setattr__(cls, "__init__", to)
            shortcut.value = direct
        finally:
            flags.value |= immutable

    before = shortcut.value
    change(replacement, 0)
    return lambda: change(original, before)
