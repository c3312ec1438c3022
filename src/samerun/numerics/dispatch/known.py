"""Which of torch's CPU operators are known to change their bits, and with what: measured with torch 2.13 on x86-64.

An experiment shows what these inputs do on this machine; the table also knows what others did elsewhere.
"""

from __future__ import annotations

from samerun.numerics.operators.declare import words

THREADS = frozenset(
    words("""
    dot mv mm addmm bmm baddbmm convolution convolution_backward sum mean var std var_mean prod _softmax
    native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    sigmoid gelu sinh index_put _index_put_impl _linalg_svd linalg_qr linalg_inv_ex _linalg_solve_ex _linalg_eigh
    linalg_lstsq linalg_cholesky_ex _fft_r2c
""")
)

CAPABILITY = frozenset(
    words("""
    dot mv mm addmm bmm baddbmm convolution convolution_backward _softmax _softmax_backward_data _log_softmax
    _log_softmax_backward_data native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    binary_cross_entropy_with_logits log_sigmoid_forward log_sigmoid_backward tanh tanh_backward sigmoid
    sigmoid_backward gelu gelu_backward expm1 silu silu_backward softplus softplus_backward mish mish_backward elu
    elu_backward sinh exp2 pow log1p lgamma digamma add sub atan2 lerp addcmul glu glu_backward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward mkldnn_rnn_layer
    mkldnn_rnn_layer_backward _embedding_bag _embedding_bag_dense_backward upsample_bilinear2d
    upsample_bilinear2d_backward upsample_bicubic2d grid_sampler_2d grid_sampler_2d_backward _cdist_forward
    _cdist_backward _linalg_svd linalg_qr linalg_inv_ex _linalg_solve_ex _linalg_eigh _linalg_det linalg_lstsq
    linalg_cholesky_ex linalg_matrix_exp normal uniform randn _fused_adam _fused_adamw _fused_sgd
""")
)

BATCH = frozenset(words("mm addmm convolution sigmoid"))

KNOWN = {"threads": THREADS, "capability": CAPABILITY, "batch": BATCH}


def known(operator: str) -> list[str]:
    """What an operator ("aten.mm.default") is known to change with."""
    name = operator.split(".")[1].rstrip("_").removeprefix("_foreach_")
    return [what for what, names in KNOWN.items() if name in names]
