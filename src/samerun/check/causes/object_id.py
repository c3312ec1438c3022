"""Addresses decide an order: `id()`, sets of objects. Named by following the program's lines."""

from samerun.check.causes.cause import Cause, nothing

CAUSE = Cause(
    "object-id",
    nothing,
    "order by something that belongs to the object (a name, its position), not by id() or by a set of objects",
    "Objects without a __hash__ of their own are hashed by their address, which is another one in every run."
    " Sets of parameters or modules, and sorting by id(), follow it.",
)
