"""Every operator of which torch has no deterministic algorithm, in the order of torch's own list."""

from __future__ import annotations

from samerun.control.deterministic_kernels import (
    cumsum,
    grid_sample,
    interpolation,
    losses,
    order_statistics,
    padding,
    pooling,
    resize_quantized,
    scatter,
)
from samerun.control.deterministic_kernels.declare import DeterministicOperator

OPERATORS: tuple[DeterministicOperator, ...] = (
    pooling.AVG_POOL3D,
    pooling.ADAPTIVE_AVG_POOL,
    pooling.MAX_POOL,
    pooling.MAX_UNPOOL,
    interpolation.INTERPOLATE,
    padding.REFLECTION_PAD,
    padding.REPLICATION_PAD,
    losses.NLL_LOSS2D,
    losses.CTC_LOSS,
    scatter.EMBEDDING_BAG_MAX,
    scatter.PUT,
    order_statistics.HISTC,
    scatter.BINCOUNT,
    order_statistics.KTHVALUE,
    order_statistics.MEDIAN,
    grid_sample.GRID_SAMPLE,
    cumsum.OPERATOR,
    scatter.SCATTER_REDUCE_PROD,
    scatter.INDEX_REDUCE,
    resize_quantized.OPERATOR,
)
