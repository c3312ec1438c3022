"""A subclass that passes for the class it stands in for: for types written in C, which cannot be changed.

It makes objects of the real type, and counts as the real type in `isinstance`, `issubclass`, `==` and
dictionaries; only `type(x) is ...` can tell. Subclasses of it are ordinary classes.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any


def stand_in(plain: Any, methods: dict[str, Any], make: Callable[..., Any] | None = None) -> Any:
    """A stand-in for `plain` with other class methods.

    `make(*args)` makes an object of the real type; None: as the type itself does without `__init__`.
    """

    class Kind(type(plain)):  # type: ignore[misc]  # `plain` may be a stand-in itself
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, plain) if cls is made else type.__instancecheck__(cls, instance)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, plain) if cls is made else type.__subclasscheck__(cls, kind)

        def __eq__(cls, other: object) -> bool:
            return other is cls or (cls is made and bool(plain == other))

        def __hash__(cls) -> int:
            return hash(plain) if cls is made else type.__hash__(cls)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is not made:
            return plain.__new__(cls, *args, **kwargs)
        return make(*args, **kwargs) if make is not None else plain.__new__(plain, *args, **kwargs)

    names: dict[str, Any] = {"__new__": new, "__doc__": plain.__doc__, "__module__": plain.__module__}
    names.update({name: classmethod(method) for name, method in methods.items()})
    made: Any = Kind(plain.__name__, (plain,), names)
    return made


def pickle_by(made: Any, plain: Any) -> None:
    """Have objects of the real type pickled by the stand-in's name: pickle looks a class up by its name."""
    copyreg.pickle(plain, lambda value: (made, value.__reduce_ex__(4)[1]))
