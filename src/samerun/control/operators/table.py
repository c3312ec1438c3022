"""Every operator of which torch has no deterministic algorithm, in the order of torch's own list."""

from __future__ import annotations

from samerun.control.operators import (
    adaptive_avg_pool,
    avg_pool3d,
    bincount,
    ctc_loss,
    cumsum,
    embedding_bag_max,
    grid_sample,
    histc,
    index_reduce,
    interpolate,
    kthvalue,
    max_pool,
    max_unpool,
    median,
    nll_loss2d,
    put,
    reflection_pad,
    replication_pad,
    resize_quantized,
    scatter_reduce_prod,
)
from samerun.control.operators.declare import Operator

OPERATORS: tuple[Operator, ...] = (
    avg_pool3d.OPERATOR,
    adaptive_avg_pool.OPERATOR,
    max_pool.OPERATOR,
    max_unpool.OPERATOR,
    interpolate.OPERATOR,
    reflection_pad.OPERATOR,
    replication_pad.OPERATOR,
    nll_loss2d.OPERATOR,
    ctc_loss.OPERATOR,
    embedding_bag_max.OPERATOR,
    put.OPERATOR,
    histc.OPERATOR,
    bincount.OPERATOR,
    kthvalue.OPERATOR,
    median.OPERATOR,
    grid_sample.OPERATOR,
    cumsum.OPERATOR,
    scatter_reduce_prod.OPERATOR,
    index_reduce.OPERATOR,
    resize_quantized.OPERATOR,
)
