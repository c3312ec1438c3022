"""Class E: operators whose torch kernels already give the one specified result, on any CPU and any number of threads.

They move values, compare, or round once. `ORDERED` add in a written order, one value after the other, in torch's
kernels as in the specification.
"""

from __future__ import annotations

from samerun.numerics.aten_handlers.declare import split_names

MOVES = split_names("""
    _conj _is_all_true _is_any_true _local_scalar_dense _neg_view _pack_padded_sequence _pad_packed_sequence
    _reshape_alias _shape_as_tensor _to_copy _unsafe_view alias alias_copy as_strided as_strided_
    as_strided_scatter atleast_1d broadcast_tensors cat channel_shuffle clone constant_pad_nd contiguous copy
    copy_ detach detach_ diag_embed diagonal diagonal_copy diagonal_scatter embedding empty empty_like
    empty_permuted empty_strided equal expand expand_copy expand_as eye fill flip full full_like gather im2col
    index index_copy index_fill index_select is_same_size is_pinned item lift lift_fresh lift_fresh_copy
    masked_fill masked_scatter masked_select movedim narrow narrow_copy new_empty new_empty_strided new_full
    new_ones new_zeros nonzero nonzero_static ones ones_like permute permute_copy pin_memory pixel_shuffle
    pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat repeat_interleave
    replication_pad1d replication_pad2d replication_pad3d reshape resize resize_ resize_as_ roll rot90
    scalar_tensor select select_backward select_copy select_scatter set_ slice slice_backward slice_copy
    slice_scatter split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_ squeeze_copy stack
    sym_size sym_stride sym_numel t t_ t_copy take take_along_dim tile to transpose transpose_ transpose_copy
    tril tril_indices triu triu_indices unbind unbind_copy unfold unfold_copy unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_ unsqueeze_copy view view_as view_copy where zero zeros
    zeros_like _nested_tensor_size is_nonzero max_pool2d_with_indices max_pool3d_with_indices fractional_max_pool2d
    fractional_max_pool3d masked_scatter_backward upsample_nearest1d
    upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d diag adaptive_max_pool2d adaptive_max_pool3d bucketize searchsorted one_hot isin
    unique_dim _unique2 unique_consecutive _assert_async _foreach_copy_ _foreach_zero_
    complex view_as_complex view_as_real _linalg_check_errors _chunk_cat block_diag as_strided_copy
    _unsafe_masked_index _unique hash_tensor
    _has_compatible_shallow_copy_type _has_same_storage_numel _new_zeros_with_same_feature_meta
    _version record_stream result_type can_cast
""")

ROUND_ONCE = split_names("""
    abs all any argmax argmin bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor ceil copysign count_nonzero cummax cummin div eq floor frac frexp ge gt hardtanh_backward
    heaviside isfinite isinf isnan isneginf isposinf leaky_relu leaky_relu_backward le logical_and logical_not
    logical_or logical_xor lt mul multiply nan_to_num ne neg negative nextafter positive round sgn sign signbit
    square threshold threshold_backward true_divide trunc __and__ __or__ __xor__ __lshift__ __rshift__ __iand__
    __ior__ __ixor__ _prelu_kernel _prelu_kernel_backward floor_divide abs_ reciprocal
""")

ORDERED = split_names("""
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward reflection_pad1d_backward
    reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward
    fractional_max_pool2d_backward fractional_max_pool3d_backward
""")

OVERLOADS = split_names("max.dim min.dim sort.stable scatter.src scatter.value scatter_.src scatter_.value")

EXACT = frozenset(f"aten::{name}" for name in MOVES + ROUND_ONCE + ORDERED)
EXACT_OVERLOADS = frozenset(f"aten::{name}" for name in OVERLOADS)
