"""Digests: every bit, its place, dtype and shape count; strides, copies and pieces do not."""

from __future__ import annotations

import gc
import itertools
import random
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from samerun.record.digests import digest as d
from samerun.record.digests.digest import digest, digest_on_device, is_readable, shape_seed


def can_be_copied(dtype: torch.dtype) -> bool:
    with warnings.catch_warnings(action="ignore"):  # some dtypes call themselves experimental, once
        try:
            torch.empty(2, 2, dtype=dtype).t().contiguous()
        except (RuntimeError, TypeError):
            return False
    return True


DTYPES = sorted(
    {v for v in vars(torch).values() if isinstance(v, torch.dtype) and not str(v).startswith("torch.q")}, key=str
)
DTYPES = [dtype for dtype in DTYPES if can_be_copied(dtype)]


def tensor_on(data: bytes, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
    """A tensor of any strides over a copy of raw bytes."""
    storage = torch.UntypedStorage(len(data))
    if data:
        torch.empty(0, dtype=torch.uint8).set_(storage).copy_(torch.tensor(list(data), dtype=torch.uint8))
    return torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)


def elements_of(data: bytes, width: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> bytes:
    """The bytes of the elements of such a tensor, in order, found one by one."""
    found = b""
    for index in itertools.product(*(range(n) for n in shape)):
        at = (offset + sum(i * s for i, s in zip(index, stride, strict=True))) * width
        found += data[at : at + width]
    return found


def contiguous(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    stride = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return tensor_on(data, dtype, shape, stride, 0)


@st.composite
def layouts(draw: Any) -> tuple[bytes, torch.dtype, tuple[int, ...], tuple[int, ...], int]:
    """(storage, dtype, shape, stride, offset): expanded, permuted, with gaps, overlapping."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    stride = tuple(draw(st.integers(0, 5)) for _ in shape)
    offset = draw(st.integers(0, 3))
    last = offset + sum(max(0, n - 1) * s for n, s in zip(shape, stride, strict=True))
    size = (last + 1) * torch.empty(0, dtype=dtype).element_size()
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype is torch.bool:
        raw = bytes(byte & 1 for byte in raw)  # other bytes are no truth values: torch makes them 1 in a copy
    return raw, dtype, shape, stride, offset


@settings(deadline=None, max_examples=300)
@given(layouts(), st.data())
def test_every_bit_counts_and_no_stride(layout: Any, data: Any) -> None:
    raw, dtype, shape, stride, offset = layout
    tensor = tensor_on(*layout)
    elements = elements_of(raw, tensor.element_size(), shape, stride, offset)
    found = digest(tensor)
    assert len(found) == 16
    assert found == digest(contiguous(elements, dtype, shape))
    assert digest_on_device(tensor, 1) == digest_on_device(contiguous(elements, dtype, shape), 1)
    if not elements:
        return
    bit = data.draw(st.integers(0, 8 * len(elements) - 1))
    flipped = bytearray(elements)
    flipped[bit // 8] ^= 1 << bit % 8
    other = contiguous(bytes(flipped), dtype, shape)
    assert digest(other) != found
    assert digest_on_device(other, 1) != digest_on_device(tensor, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flipping_any_single_bit(dtype: torch.dtype) -> None:
    raw = bytes(range(3 * torch.empty(0, dtype=dtype).element_size()))
    seen = {digest(contiguous(raw, dtype, (3,)))}
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        seen.add(digest(contiguous(bytes(flipped), dtype, (3,))))
    assert len(seen) == 1 + 8 * len(raw)


def test_order_dtype_and_shape_count() -> None:
    one = torch.tensor([1, 2, 3, 4, 5, 6], dtype=torch.int32)
    others = [
        one.flip(0), one.view(torch.float32), one.view(torch.uint32), one.view(2, 3), one.view(3, 2), one.view(1, 6),
        one.view(6, 1), one.view(2, 3).t(), one.to(torch.int64), one[:5], one.view(torch.int16),
    ]  # fmt: skip
    assert len({digest(one), *map(digest, others)}) == 1 + len(others)


def test_empty_tensors_differ_by_shape_and_dtype() -> None:
    tensors = [torch.empty(0), torch.empty(0, 3), torch.empty(3, 0), torch.empty(0, dtype=torch.int32)]
    assert len(set(map(digest, tensors))) == 4
    assert digest(torch.empty(0, 3)) == digest(torch.ones(4, 3)[2:2])


def test_negative_zero_is_not_zero() -> None:
    assert digest(torch.tensor(0.0)) != digest(torch.tensor(-0.0))
    assert digest(torch.tensor(0.0)) != digest(torch.tensor([0.0]))


def test_nan_bits_count() -> None:
    bits = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32)
    assert digest(bits[:1].view(torch.float32)) != digest(bits[1:].view(torch.float32))


def test_strides_of_every_kind_do_not_count() -> None:
    images = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).float()
    row = torch.arange(3).float()
    for view, dense in [
        (images.to(memory_format=torch.channels_last), images),
        (row.expand(4, 3), row.repeat(4, 1)),
        (images.permute(3, 1, 0, 2), images.permute(3, 1, 0, 2).clone(memory_format=torch.contiguous_format)),
        (images[..., ::2], images[..., ::2].clone(memory_format=torch.contiguous_format)),
        (images.flatten()[7:19], images.flatten()[7:19].clone()),
    ]:
        assert digest(view) == digest(dense)


def test_lazy_conjugation_and_negation_are_done() -> None:
    z = torch.complex(torch.randn(3, 4), torch.randn(3, 4))
    assert z.conj().is_conj() and z.conj().imag.is_neg()
    assert digest(z.conj()) == digest(torch.conj_physical(z)) != digest(z)
    assert digest(z.conj().imag) == digest(-z.imag.clone()) != digest(z.imag)
    assert digest(z.conj().t()) == digest(torch.conj_physical(z.t()).contiguous())
    assert digest_on_device(z.conj(), 1) == digest_on_device(torch.conj_physical(z), 1) != digest_on_device(z, 1)


def test_gradients_and_parameters_do_not_matter() -> None:
    plain = torch.randn(3, 3)
    assert digest(torch.nn.Parameter(plain)) == digest(plain) == digest(plain.clone().requires_grad_())
    leaf = plain.clone().requires_grad_()
    assert digest(leaf.t()) == digest(plain.t().contiguous())


@pytest.mark.filterwarnings("ignore")  # several of these layouts call themselves a beta
@pytest.mark.parametrize("name", ["coo", "csr", "csc", "bsr", "bsc", "quantised", "per_channel"])
def test_composites_are_read(name: str) -> None:
    make = {
        "coo": lambda t: t.to_sparse(),
        "csr": lambda t: t.to_sparse_csr(),
        "csc": lambda t: t.to_sparse_csc(),
        "bsr": lambda t: t.to_sparse_bsr((2, 2)),
        "bsc": lambda t: t.to_sparse_bsc((2, 2)),
        "quantised": lambda t: torch.quantize_per_tensor(t, 0.5, 3, torch.qint8),
        "per_channel": lambda t: torch.quantize_per_channel(
            t, torch.tensor([0.5] * 4), torch.tensor([3] * 4), 0, torch.qint8
        ),
    }[name]
    dense = torch.diag(torch.tensor([1.0, 2.0, 0.0, 4.0]))
    moved, changed = dense.flip(0), dense * 2
    assert not is_readable(make(dense))
    assert digest(make(dense)) == digest(make(dense.clone()))
    assert len({digest(make(t)) for t in (dense, moved, changed)} | {digest(dense)}) == 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_read(layout: torch.layout) -> None:
    def nested(*parts: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor(list(parts), layout=layout)

    one, two = torch.arange(2.0), torch.arange(3.0)
    assert not is_readable(nested(one, two))
    assert len({digest(nested(*parts)) for parts in ((one, two), (two, one), (one, two + 1), (one, two[:2]))}) == 4
    if layout is torch.strided:  # of jagged ones the shape tells which object made it
        assert digest(nested(one, two)) == digest(nested(one, two))


@pytest.mark.filterwarnings("ignore")
def test_the_scale_of_quantised_tensors_counts() -> None:
    values = torch.tensor([1.0, 2.0, 3.0])
    coarse = torch.quantize_per_tensor(values, 0.5, 0, torch.qint8)
    fine = torch.quantize_per_tensor(values / 2, 0.25, 0, torch.qint8)
    assert torch.equal(coarse.int_repr(), fine.int_repr())
    assert digest(coarse) != digest(fine)


def test_meta_tensors_have_shape_and_dtype_only() -> None:
    assert digest(torch.empty(3, device="meta")) == digest(torch.ones(3, device="meta"))
    assert digest(torch.empty(3, device="meta")) != digest(torch.empty(4, device="meta"))
    assert digest(torch.empty(3, device="meta")) != digest(torch.empty(3, device="meta", dtype=torch.int32))


class Named(torch.Tensor):
    """A subclass that only adds behaviour."""


class Wrapper(torch.Tensor):
    """A subclass that handles its own operators: its memory says nothing."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("a digest must not run a wrapper's operators")


def test_subclasses() -> None:
    plain = torch.randn(4)
    assert digest(plain.as_subclass(Named)) == digest(plain)
    assert not is_readable(Wrapper(plain))
    assert digest(Wrapper(plain)) == digest(Wrapper(plain + 1)) != digest(plain)


@pytest.mark.parametrize("chunk", [1, 16, 100, 1 << 20])
def test_large_views_go_in_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "_CHUNK_BYTES", chunk)
    base = torch.randn(6, 5, 4, 3)
    z = torch.complex(base, base + 1)
    for view in (base.permute(2, 0, 3, 1), base[:, ::2], torch.randn(3).expand(50, 3), z.conj(), z.conj().imag):
        assert digest(view) == digest(view.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg())


MASK = (1 << 64) - 1


def splitmix64(x: int) -> int:
    """The finaliser, in whole numbers, as in Vigna's splitmix64.c."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def slow_device_digest(raw: bytes, seed: int) -> bytes:
    if not raw:
        return xxh3_128_digest(b"", seed)
    raw += b"\0" * (-len(raw) % 4)
    sums = [0, 0]
    for at in range(len(raw) // 4):
        word = int.from_bytes(raw[4 * at : 4 * at + 4], "little", signed=True) & MASK
        for which, golden in enumerate((0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)):
            key = splitmix64((at + 1) * golden & MASK)
            sums[which] = (sums[which] + splitmix64(word ^ key)) & MASK
    return xxh3_128_digest(b"".join(s.to_bytes(8, "little") for s in sums), seed)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(DTYPES), st.integers(0, 40), st.data())
def test_device_digest_is_what_it_says(dtype: torch.dtype, size: int, data: Any) -> None:
    raw = data.draw(st.binary(min_size=size, max_size=size))
    raw = raw[: size - size % torch.empty(0, dtype=dtype).element_size()]
    tensor = contiguous(raw, dtype, (len(raw) // torch.empty(0, dtype=dtype).element_size(),))
    assert digest_on_device(tensor, 7) == slow_device_digest(raw, 7)
    assert digest_on_device(tensor, 7) != digest_on_device(tensor, 8)


def test_the_finaliser_is_splitmix64() -> None:
    # the first outputs of splitmix64 seeded with 1234567, as the reference in C prints them
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    at = torch.arange(1, 4, dtype=torch.int64)
    assert [v & MASK for v in d._splitmix64_finalize(1234567 + at * d._GOLDEN).tolist()] == expected


@pytest.mark.parametrize("chunk", [1, 3, 64, 1 << 22])
def test_device_digest_does_not_depend_on_its_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(100, dtype=torch.int16)[:99]
    expected = slow_device_digest(tensor.numpy().tobytes(), 3)
    monkeypatch.setattr(d, "_CHUNK_WORDS", chunk)
    assert digest_on_device(tensor, 3) == expected


def test_device_digest_minds_the_order() -> None:
    rows = torch.arange(12, dtype=torch.float32).view(3, 4)
    arranged = [rows[list(order)] for order in itertools.permutations(range(3))]
    assert len({digest_on_device(t, 0) for t in arranged}) == 6
    assert digest_on_device(torch.zeros(8), 0) != digest_on_device(torch.zeros(9), 0)


def test_seeds_of_dtype_and_shape_survive_a_full_table(monkeypatch: pytest.MonkeyPatch) -> None:
    before = shape_seed(torch.float32, (2, 3))
    monkeypatch.setattr(d, "_shape_seeds", {(torch.float32, n): n for n in range((1 << 16) + 1)})
    assert shape_seed(torch.float32, (2, 3)) == before
    assert len(d._shape_seeds) == 1


def test_no_generator_moves_and_no_memory_is_kept() -> None:
    tensor = torch.complex(torch.randn(8, 8), torch.randn(8, 8)).t().conj()
    python, numpy, own = random.getstate(), np.random.get_state(), torch.get_rng_state()
    digest(tensor), digest_on_device(tensor, 0)
    assert random.getstate() == python
    assert np.array_equal(np.random.get_state()[1], numpy[1])
    assert torch.equal(torch.get_rng_state(), own)
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None
