"""Where a rank stands in device meshes, so that another rank can compute its step: it takes other parts of a tensor.

Imports nothing of torch itself: a program without `torch.distributed.device_mesh` has no meshes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

CoordinatesByMesh: TypeAlias = "dict[tuple[Any, ...], tuple[int, ...] | None]"
"""Names of the dimensions and shape of a mesh, which all ranks have alike -> the place of one rank in it.

None: not in it, or in meshes with these names and this shape at several places.
"""
_ATTRIBUTE = "_coordinate_on_dim"
"""Of a `DeviceMesh`: where this rank is in it. All that asks for a coordinate reads it (torch 2.10 to 2.15)."""


@contextmanager
def recorded_mesh_coordinates() -> Iterator[CoordinatesByMesh]:
    """A block after which the dictionary holds this rank's place in every mesh that was asked for it."""
    found: CoordinatesByMesh = {}

    def record(mesh: Any, own: tuple[int, ...] | None) -> tuple[int, ...] | None:
        key = _make_mesh_key(mesh)
        found[key] = own if found.setdefault(key, own) == own else None
        return own

    with _coordinates_given_by(record):
        yield found


@contextmanager
def replaced_mesh_coordinates(coordinates: CoordinatesByMesh) -> Iterator[None]:
    """A block in which meshes say that this rank is where another one was, as `recorded_mesh_coordinates` found."""

    def replace(mesh: Any, own: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return coordinates.get(_make_mesh_key(mesh)) or own

    with _coordinates_given_by(replace):
        yield


@contextmanager
def _coordinates_given_by(choose: Any) -> Iterator[None]:
    meshes = sys.modules.get("torch.distributed.device_mesh")
    kind: Any = getattr(meshes, "DeviceMesh", None)
    if kind is None or hasattr(kind, _ATTRIBUTE):
        yield
        return

    def read(mesh: Any) -> Any:
        if _ATTRIBUTE not in vars(mesh):
            raise AttributeError(_ATTRIBUTE)
        return choose(mesh, vars(mesh)[_ATTRIBUTE])

    def write(mesh: Any, value: Any) -> None:
        vars(mesh)[_ATTRIBUTE] = value

    # A property of the class comes before what its objects have under that name, so that those stay as they are.
    setattr(kind, _ATTRIBUTE, property(read, write))
    try:
        yield
    finally:
        delattr(kind, _ATTRIBUTE)


def _make_mesh_key(mesh: Any) -> tuple[Any, ...]:
    return (*(mesh.mesh_dim_names or ()), *mesh.shape)
