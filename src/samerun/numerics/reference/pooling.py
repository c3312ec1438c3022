"""Pooling over the last dimensions of float32 or float64 arrays, window by window.

A mean is the class S sum of the window, row-major, divided once; what lies outside of x is absent from the sum but
keeps its place in the window. Gradients add up from +0.0 on, in ascending window. Settings have one value a dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from samerun.numerics.reference import Array
from samerun.numerics.reference.sums import sum_rows

ALL_PLANES = slice(None)


def _index_plane(plane: Any, position: Sequence[int]) -> tuple[Any, ...]:
    """Index a position of one plane, or of all. (mypy takes a tuple with a star inside brackets for Python 3.11.)"""
    return (plane, *position)


def _flatten_to_planes(x: Array, num_dims: int) -> Array:
    """[planes, *pooled dimensions]."""
    return x.reshape(math.prod(x.shape[: x.ndim - num_dims]), *x.shape[x.ndim - num_dims :])


def _iterate_windows(
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[tuple[Any, Any]]:
    """The place of each window, and the positions of its taps, also those outside; row-major."""
    for at in np.ndindex(*output_size):
        first = [i * s - p for i, s, p in zip(at, stride, padding, strict=True)]
        taps = np.ndindex(*kernel_size)
        yield at, [tuple(f + t * d for f, t, d in zip(first, tap, dilation, strict=True)) for tap in taps]


def _is_inside(position: Sequence[int], size: Sequence[int]) -> bool:
    return all(0 <= i < extent for i, extent in zip(position, size, strict=True))


def _window_divisor(
    taps: Sequence[Sequence[int]],
    size: Sequence[int],
    padding: Sequence[int],
    count_include_pad: bool,
    divisor: int | None,
) -> int:
    """How many taps lie in x, or in x with its padding on both sides."""
    if divisor:
        return divisor
    if not count_include_pad:
        return len([tap for tap in taps if _is_inside(tap, size)])
    wide = [extent + 2 * p for extent, p in zip(size, padding, strict=True)]
    return len([tap for tap in taps if _is_inside([i + p for i, p in zip(tap, padding, strict=True)], wide)])


def avg_pool(
    x: Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    count_include_pad: bool,
    divisor: int | None,
) -> Array:
    planes, size = _flatten_to_planes(x, len(kernel_size)), x.shape[-len(kernel_size) :]
    found = np.empty((len(planes), *output_size), x.dtype)
    for at, taps in _iterate_windows(output_size, kernel_size, stride, padding, [1] * len(kernel_size)):
        window = np.full((len(planes), len(taps)), -0.0, x.dtype)
        for number, tap in enumerate(taps):
            if _is_inside(tap, size):
                window[:, number] = planes[_index_plane(ALL_PLANES, tap)]
        by = x.dtype.type(_window_divisor(taps, size, padding, count_include_pad, divisor))
        with np.errstate(all="ignore"):
            found[_index_plane(ALL_PLANES, at)] = sum_rows(window) / by
    return found.reshape(*x.shape[: x.ndim - len(kernel_size)], *output_size)


def avg_pool_backward(
    grad: Array,
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    count_include_pad: bool,
    divisor: int | None,
) -> Array:
    given, size = _flatten_to_planes(grad, len(kernel_size)), x.shape[-len(kernel_size) :]
    found = np.zeros((len(given), *size), x.dtype)
    for at, taps in _iterate_windows(given.shape[1:], kernel_size, stride, padding, [1] * len(kernel_size)):
        by = x.dtype.type(_window_divisor(taps, size, padding, count_include_pad, divisor))
        with np.errstate(all="ignore"):
            for tap in taps:
                if _is_inside(tap, size):
                    found[_index_plane(ALL_PLANES, tap)] += given[_index_plane(ALL_PLANES, at)] / by
    return found.reshape(x.shape)


def _adaptive_windows(size: Sequence[int], output_size: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    """The place of each adaptive window, and its positions: floor(i * size / out) to ceil((i + 1) * size / out)."""
    for at in np.ndindex(*output_size):
        first = [i * extent // out for i, extent, out in zip(at, size, output_size, strict=True)]
        last = [-(-(i + 1) * extent // out) for i, extent, out in zip(at, size, output_size, strict=True)]
        lengths = [b - a for a, b in zip(first, last, strict=True)]
        yield at, [tuple(f + t for f, t in zip(first, tap, strict=True)) for tap in np.ndindex(*lengths)]


def adaptive_avg_pool(x: Array, output_size: Sequence[int]) -> Array:
    planes = _flatten_to_planes(x, len(output_size))
    found = np.empty((len(planes), *output_size), x.dtype)
    for at, taps in _adaptive_windows(x.shape[-len(output_size) :], output_size):
        window = np.stack([planes[_index_plane(ALL_PLANES, tap)] for tap in taps], 1)
        with np.errstate(all="ignore"):
            found[_index_plane(ALL_PLANES, at)] = sum_rows(window) / x.dtype.type(len(taps))
    return found.reshape(*x.shape[: x.ndim - len(output_size)], *output_size)


def adaptive_avg_pool_backward(grad: Array, x: Array, num_dims: int) -> Array:
    given, size = _flatten_to_planes(grad, num_dims), x.shape[x.ndim - num_dims :]
    found = np.zeros((len(given), *size), x.dtype)
    for at, taps in _adaptive_windows(size, given.shape[1:]):
        with np.errstate(all="ignore"):
            for tap in taps:
                found[_index_plane(ALL_PLANES, tap)] += given[_index_plane(ALL_PLANES, at)] / x.dtype.type(len(taps))
    return found.reshape(x.shape)


def _max_and_index_of_windows(planes: Array, windows: Any, output_size: Sequence[int]) -> tuple[Array, Array]:
    size = planes.shape[1:]
    values, indices = (
        np.empty((len(planes), *output_size), planes.dtype),
        np.empty((len(planes), *output_size), np.int64),
    )
    for at, taps in windows:
        inside = [tap for tap in taps if _is_inside(tap, size)]
        for plane in range(len(planes)):
            best = inside[0]
            for tap in inside[1:]:
                value = planes[_index_plane(plane, tap)]
                if value > planes[_index_plane(plane, best)] or np.isnan(value):
                    best = tap
            values[_index_plane(plane, at)] = planes[_index_plane(plane, best)]
            indices[_index_plane(plane, at)] = np.ravel_multi_index(best, size)
    return values, indices


def max_pool(
    x: Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[Array, Array]:
    """The largest value of each window and its place in the plane: of equal ones the first, of NaNs the last."""
    shape = (*x.shape[: x.ndim - len(kernel_size)], *output_size)
    found = _max_and_index_of_windows(
        _flatten_to_planes(x, len(kernel_size)),
        _iterate_windows(output_size, kernel_size, stride, padding, dilation),
        output_size,
    )
    return found[0].reshape(shape), found[1].reshape(shape)


def adaptive_max_pool(x: Array, output_size: Sequence[int]) -> tuple[Array, Array]:
    """As `max_pool`, over the stretches of `adaptive_avg_pool`."""
    shape = (*x.shape[: x.ndim - len(output_size)], *output_size)
    found = _max_and_index_of_windows(
        _flatten_to_planes(x, len(output_size)),
        _adaptive_windows(x.shape[-len(output_size) :], output_size),
        output_size,
    )
    return found[0].reshape(shape), found[1].reshape(shape)


def max_pool_backward(grad: Array, x: Array, indices: Array, num_dims: int) -> Array:
    """Each gradient is added where its window's largest value lies."""
    given, where = _flatten_to_planes(grad, num_dims), _flatten_to_planes(indices, num_dims)
    found = np.zeros((len(given), math.prod(x.shape[x.ndim - num_dims :])), x.dtype)
    for at in np.ndindex(*given.shape):
        with np.errstate(all="ignore"):
            found[at[0], where[at]] += given[at]
    return found.reshape(x.shape)
