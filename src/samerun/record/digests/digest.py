"""A 128-bit digest of a tensor's value: every bit of it, in order, with dtype and shape; not its strides.

On the CPU: XXH3-128 over the tensor's own memory (large memory in pieces, see `pieces`), no copy for
contiguous tensors, seeded with a hash of dtype and shape. On other devices: `digest_on_device`, computed
where the tensor is; only 16 bytes move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.base.user_code import is_library_or_generated_file
from samerun.record.digests.pieces import LARGE, IncrementalDigest, ctypes_buffer_class, digest_by_pieces

KIND_CPU = "xxh3-128"
KIND_DEVICE = "weighted-sum-128"

RELEASED = b"released"
"""In place of the elements of a tensor whose storage was shrunk below them."""

_shape_seeds: dict[tuple[Any, Any], int] = {}
_CHUNK_BYTES = 1 << 26
_CHUNK_WORDS = 1 << 22
_REPEATED_BYTES = 1 << 26
"""A larger view that repeats memory (an expanded one) is not read element by element."""


def shape_seed(dtype: Any, shape: Any) -> int:
    """64-bit seed that stands for a dtype and a shape."""
    seed = _shape_seeds.get((dtype, shape))
    if seed is None:
        if len(_shape_seeds) > 1 << 16:  # programs whose every batch has another shape
            _shape_seeds.clear()
        seed = _shape_seeds[(dtype, shape)] = xxh3_64_intdigest(f"{dtype}{tuple(shape)}".encode())
    return seed


def digest(tensor: Any) -> bytes:
    """Digest of one tensor, 16 bytes.

    It reads memory, not values: as values, 0.0 equals -0.0 and a NaN equals nothing, while two runs are the same only
    if every bit is; and memory needs neither a copy nor a conversion of its elements.

    Any dtype, shape and stride. Tensors whose elements are not plain memory (sparse, nested, quantised, meta,
    subclasses) are digested by their component tensors, or by dtype, shape and layout alone if there is nothing else
    to read (see `is_readable`). None of the program's code is called, and what cannot be read at all counts by its
    type.
    """
    from samerun.record.digests.torch_guards import HiddenFromProgram, is_plain_cpu_tensor, no_torch_function

    try:
        with no_torch_function():
            if is_plain_cpu_tensor(tensor) and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
                return digest_contiguous_cpu_tensor(tensor, shape_seed(tensor.dtype, tensor.shape))
        with HiddenFromProgram():
            return _digest_unusual_tensor(tensor)
    except Exception:
        return xxh3_128_digest(f"unreadable {type(tensor).__qualname__}".encode())


def _digest_unusual_tensor(tensor: Any) -> bytes:
    """Digest of what is not plain or not contiguous. Called only inside `HiddenFromProgram`: it uses operators."""
    from samerun.record.digests.torch_guards import as_plain_tensor

    if not is_readable(tensor):
        return _digest_components(tensor)
    tensor = as_plain_tensor(tensor)
    seed = shape_seed(tensor.dtype, tensor.shape)
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return digest_contiguous_cpu_tensor(tensor, seed) if tensor.is_cpu else digest_on_device(tensor, seed)
    if not fits_in_storage(tensor):
        return xxh3_128_digest(RELEASED, seed)
    size = tensor.numel() * tensor.element_size()
    if size > _REPEATED_BYTES and size > tensor.untyped_storage().nbytes():
        return _digest_storage_span_and_strides(tensor, seed)
    if not tensor.is_cpu:
        return digest_on_device(tensor, seed)
    if size <= _CHUNK_BYTES or tensor.dim() == 0:
        return digest_contiguous_cpu_tensor(tensor.resolve_conj().resolve_neg().contiguous(), seed)
    return _digest_noncontiguous_in_chunks(tensor, seed)


def overrides_torch_dispatch(tensor: Any) -> bool:
    """True for subclasses with a `__torch_dispatch__` of their own."""
    import torch

    kind = type(tensor)
    return kind is not torch.Tensor and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def digest_of_element_digests(values: list[Any], digest_non_tensor: Callable[[Any], bytes]) -> bytes:
    """The digest of a list: of the digests of its values; `digest_non_tensor` gives that of what is not a tensor."""
    import torch

    digests = [digest(value) if isinstance(value, torch.Tensor) else digest_non_tensor(value) for value in values]
    return xxh3_128_digest(b"".join(digests))


def is_readable(tensor: Any) -> bool:
    """True if the elements lie in memory that this process can read. Calls none of the program's code."""
    import torch

    from samerun.record.digests.torch_guards import has_real_values, no_torch_function

    base = torch.Tensor
    if overrides_torch_dispatch(tensor):
        return False
    with no_torch_function():
        return (
            base.layout.__get__(tensor) is torch.strided  # type: ignore[attr-defined]
            and has_real_values(tensor)
            and not base.is_quantized.__get__(tensor)  # type: ignore[attr-defined]
            and not base.is_nested.__get__(tensor)  # type: ignore[attr-defined]
        )


def fits_in_storage(tensor: Any) -> bool:
    """False if `untyped_storage().resize_` left less memory than the tensor has elements: reading it would crash."""
    end = (tensor.storage_offset() + _element_span(tensor)) * tensor.element_size()
    return tensor.numel() == 0 or bool(end <= tensor.untyped_storage().nbytes())


def _element_span(tensor: Any) -> int:
    """Number of elements from the first to the last in memory, of a tensor that is not empty."""
    if tensor.is_contiguous():
        return int(tensor.numel())
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(1 + sum((size - 1) * stride for size, stride in steps))


def _digest_storage_span_and_strides(tensor: Any, seed: int) -> bytes:
    """Digest of a view with more elements than its memory holds, such as an expanded one: that memory and the geometry.

    Element by element, it might be 10^12 copies of one number.
    """
    import torch

    geometry = f"{tuple(tensor.shape)}{tensor.stride()}{tensor.is_conj()}{tensor.is_neg()}"
    held = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    held.set_(tensor.untyped_storage(), tensor.storage_offset(), (_element_span(tensor),), (1,))
    return xxh3_128_digest(digest(held) + geometry.encode(), seed)


def buffer_at_address(address: int, byte_count: int) -> Any:
    """The bytes at an address as a buffer, without a copy."""
    return ctypes_buffer_class(byte_count).from_address(address)


def digest_contiguous_cpu_tensor(tensor: Any, seed: int) -> bytes:
    """Digest of a contiguous CPU tensor, without a copy."""
    if not fits_in_storage(tensor):
        return xxh3_128_digest(RELEASED, seed)
    size = tensor.nbytes
    if size >= LARGE:
        return digest_by_pieces(tensor.data_ptr(), size, seed)
    if size == 0:
        return xxh3_128_digest(b"", seed)
    return xxh3_128_digest(buffer_at_address(tensor.data_ptr(), size), seed)


def digest_on_device(tensor: Any, seed: int) -> bytes:
    """Digest of a strided tensor computed by torch operators on the tensor's device.

    Two sums modulo 2^64 over the tensor's 32-bit words, each word mixed with a pseudo-random 64-bit key
    of its position (splitmix64) before it is summed. Integer addition is associative, so the result
    does not depend on how the device orders the sum.
    """
    import torch

    if not fits_in_storage(tensor):
        return xxh3_128_digest(RELEASED, seed)
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dense.numel() == 0:
        return xxh3_128_digest(b"", seed)
    # not `reshape`: a contiguous tensor of one element may have any stride, which `view` refuses
    data = dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
    if data.numel() % 4 or data.storage_offset() % 4:
        data = torch.cat([data, data.new_zeros(-data.numel() % 4)])
    words = data.view(torch.int32)
    total = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for start in range(0, words.numel(), _CHUNK_WORDS):
        word = words[start : start + _CHUNK_WORDS].to(torch.int64)
        at = torch.arange(start + 1, start + 1 + word.numel(), dtype=torch.int64, device=tensor.device)
        total[0] += _splitmix64_finalize(word ^ _splitmix64_finalize(at * _GOLDEN)).sum()
        total[1] += _splitmix64_finalize(word ^ _splitmix64_finalize(at * _GOLDEN_2)).sum()
    low, high = (int(v) & _MASK for v in total.tolist())
    return xxh3_128_digest(low.to_bytes(8, "little") + high.to_bytes(8, "little"), seed)


_MASK = (1 << 64) - 1


def _reinterpret_uint64_as_int64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _reinterpret_uint64_as_int64(0x9E3779B97F4A7C15)
_GOLDEN_2 = _reinterpret_uint64_as_int64(0xD1B54A32D192ED03)
_M1 = _reinterpret_uint64_as_int64(0xBF58476D1CE4E5B9)
_M2 = _reinterpret_uint64_as_int64(0x94D049BB133111EB)


def _splitmix64_finalize(x: Any) -> Any:
    """The finaliser of splitmix64 on int64 tensors (shifts are made logical by a mask)."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _M1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _M2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _digest_components(tensor: Any) -> bytes:
    """Digest of a tensor made of other tensors."""
    import torch

    if overrides_torch_dispatch(tensor):
        return _digest_subclass_with_dispatch(tensor)
    tag = f"{tensor.layout}{tensor.device.type}{type(tensor).__qualname__}".encode()
    seed = shape_seed(tensor.dtype, () if tensor.is_nested else tensor.shape)
    parts: list[Any] = []
    try:
        if tensor.is_nested:
            parts = [part.detach() for part in tensor.unbind()]
        elif tensor.is_quantized:
            parts = [tensor.int_repr()]
            tag += repr(tensor.qscheme()).encode()
            if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
                tag += repr((tensor.q_scale(), tensor.q_zero_point())).encode()
            else:
                parts += [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
        elif tensor.layout is torch.sparse_coo:
            parts = [tensor._indices(), tensor._values()]
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        elif str(tensor.layout) == "torch._mkldnn":
            parts = [tensor.to_dense()]
    except RuntimeError:
        parts = []
    return xxh3_128_digest(tag + b"".join(digest(p) for p in parts), seed)


def _digest_subclass_with_dispatch(tensor: Any) -> bytes:
    """Digest of a tensor of a class with a dispatch of its own.

    A library's class (DTensor, nested tensors) is asked for its parts; the program's own code is not called.
    """
    import torch

    from samerun.record.digests.torch_guards import has_real_values

    kind, base = type(tensor), torch.Tensor
    layout, device, dtype, shape = (
        getattr(base, name).__get__(tensor) for name in ("layout", "device", "dtype", "shape")
    )
    parts: list[Any] = []
    take_apart: Any = getattr(kind, "__tensor_flatten__", None)
    file = getattr(getattr(take_apart, "__code__", None), "co_filename", "")
    if is_library_or_generated_file(file) and kind.__name__ not in _UNFINISHED and has_real_values(tensor):
        parts = [getattr(tensor, name) for name in take_apart(tensor)[0]]
    tag = f"{layout}{device.type}{kind.__qualname__}".encode()
    return xxh3_128_digest(tag + b"".join(map(digest, parts)), shape_seed(dtype, shape))


_UNFINISHED = frozenset(("AsyncCollectiveTensor",))
"""Their values may not have arrived yet."""


def _digest_noncontiguous_in_chunks(tensor: Any, seed: int) -> bytes:
    """The digest of the contiguous copy, without making more of it than a chunk at a time."""
    running = IncrementalDigest(tensor.nbytes, seed)
    stack = [tensor]
    while stack:
        part = stack.pop()
        if part.dim() == 0 or part.numel() * part.element_size() <= _CHUNK_BYTES:
            dense = part.resolve_conj().resolve_neg().contiguous()
            size = dense.numel() * dense.element_size()
            if size:
                running.update(memoryview(buffer_at_address(dense.data_ptr(), size)).cast("B"))
        else:
            stack.extend(reversed(part.unbind(0)))
    return running.digest()
