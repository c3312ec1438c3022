"""Sparse tensors inside portable(): products, gradients and optimizers, beside dense ones and sums written out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import samerun

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:Sparse CS[RC] tensor support")
draws = torch.Generator().manual_seed(0)
ROWS, COLUMNS, ENTRIES = 30, 20, 90
PLACES = torch.stack([torch.randint(size, (ENTRIES,), generator=draws) for size in (ROWS, COLUMNS)])
VALUES, DENSE, ADDED = (torch.randn(*size, generator=draws) for size in ((ENTRIES,), (COLUMNS, 7), (ROWS, 7)))
TYPES = (torch.float32, torch.float64, torch.bfloat16)


def adjacency(dtype: torch.dtype) -> Tensor:
    """Uncoalesced: some places have several values."""
    return torch.sparse_coo_tensor(PLACES, VALUES.to(dtype), (ROWS, COLUMNS))


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.parametrize("dtype", TYPES[:2])
def test_a_product_is_the_sum_of_each_rows_entries(dtype: torch.dtype, layout: str) -> None:
    dense = DENSE.to(dtype)
    with samerun.portable():
        matrix = adjacency(dtype).coalesce()
        places, values = matrix.indices(), matrix.values()
        given = {"coo": lambda: matrix, "csr": matrix.to_sparse_csr, "csc": matrix.to_sparse_csc}[layout]()
        found = given @ dense
        for row in range(ROWS):
            here = places[0] == row
            assert torch.equal(found[row], (values[here][:, None] * dense[places[1][here]]).sum(0))


def graph_layer(dtype: torch.dtype) -> list[Tensor]:
    values, dense = (each.to(dtype, copy=True).requires_grad_() for each in (VALUES, DENSE))
    matrix = torch.sparse_coo_tensor(PLACES, values, (ROWS, COLUMNS)).coalesce()
    y = torch.sparse.addmm(ADDED.to(dtype), matrix, torch.relu(dense), beta=0.5, alpha=2.0)
    y.square().sum().backward()
    assert values.grad is not None and dense.grad is not None
    return [y.detach(), values.grad, dense.grad]


def transposed_and_vector(dtype: torch.dtype) -> list[Tensor]:
    dense = ADDED.to(dtype, copy=True).requires_grad_()
    y = adjacency(dtype).t() @ dense
    y.sum().backward()
    assert dense.grad is not None
    return [y.detach(), dense.grad, adjacency(dtype) @ DENSE.to(dtype)[:, 0]]


def moved_and_scaled(dtype: torch.dtype) -> list[Tensor]:
    twice = adjacency(dtype)
    matrix = twice.coalesce()
    made = [matrix * 2, matrix / 3, -matrix, matrix + matrix, twice + twice, matrix.t(), matrix.to_dense().to_sparse()]
    return [*made, matrix.to_sparse_csr().to_dense(), matrix.to_dense() + twice, matrix.values(), matrix.indices()]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compute", [graph_layer, transposed_and_vector, moved_and_scaled])
def test_results_and_gradients_are_torchs_but_for_rounding(
    compute: Callable[[torch.dtype], list[Tensor]], dtype: torch.dtype
) -> None:
    theirs = compute(dtype)
    with samerun.portable():
        ours = compute(dtype)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.layout, one.dtype, one.shape) == (other.layout, other.dtype, other.shape)
        if one.layout is torch.sparse_coo:
            assert one.is_coalesced() == other.is_coalesced()
            one, other = one.to_dense(), other.to_dense()
        if dtype is torch.bfloat16:  # torch rounds every addition to it
            assert (one.float() - other.float()).abs().max() <= 2**-6 * other.float().abs().max()
        else:
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("make_optimizer", [torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad])
def test_sparse_gradients_of_an_embedding_train_as_in_torch(
    make_optimizer: Callable[..., torch.optim.Optimizer], mode: str
) -> None:
    def train() -> Tensor:
        table = nn.Embedding.from_pretrained(ADDED.clone(), freeze=False, sparse=True)
        bags = nn.EmbeddingBag.from_pretrained(ADDED.clone(), freeze=False, sparse=True, mode=mode)
        optimizer = make_optimizer([table.weight, bags.weight], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            weights = VALUES.view(-1, 6) if mode == "sum" else None
            (table(PLACES[0]).square().sum() + bags(PLACES[0].view(-1, 6), None, weights).square().sum()).backward()
            optimizer.step()
        return torch.cat([table.weight.detach(), bags.weight.detach()])

    theirs = train()
    with samerun.portable():
        torch.testing.assert_close(train(), theirs)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda matrix: torch.sparse.softmax(matrix, 1), "a sparse tensor"),
        (lambda matrix: matrix @ matrix.t(), "sparse second factor"),
        (lambda matrix: matrix * matrix, "another tensor"),
    ],
)
def test_what_has_no_kernel_is_refused_by_name(call: Callable[[Tensor], Tensor], words: str) -> None:
    with samerun.portable(), pytest.raises(samerun.NotPortableError, match=words):
        call(adjacency(torch.float32).coalesce())


def test_shapes_and_types_that_do_not_fit_get_torchs_error() -> None:
    for dense in (ADDED, DENSE.double(), DENSE[0]):
        with pytest.raises(Exception) as theirs:
            adjacency(torch.float32) @ dense
        with samerun.portable(), pytest.raises(type(theirs.value)) as ours:
            adjacency(torch.float32) @ dense
        assert str(ours.value) == str(theirs.value)
