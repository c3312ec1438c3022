/* Convolutions without the taps that lie beyond the border of the image. */
#ifndef SAMERUN_SKIP_PADDING_H
#define SAMERUN_SKIP_PADDING_H

#include "convolution_shape.h"
#include "status.h"

/* A product in which columns meet some of the taps only, in an order of its own. */
typedef struct {
    uint64_t *tap_mask;
    samerun_offset_table to; /* where its columns' results go */
    char *results;     /* the results, which belong to SCRATCH_PHASE */
    const void *bias;
    int64_t columns;
    size_t element_size;
} samerun_reordered_columns;

/* Change a product, forward or `is_input_gradient` for the gradient of the input, where its taps beyond the border
 * are worth leaving out. Done: samerun_try_scatter_and_free_columns is due. Declined: the product is unchanged. */
samerun_status samerun_try_skip_padding_taps(const samerun_convolution_shape *shape, int is_input_gradient,
                                             int is_double, const void *weight, samerun_gemm *gemm,
                                             samerun_reordered_columns *reordered);
/* Put the results in their places. Declines where their bits might not be those of the product with zeros. */
samerun_status samerun_try_scatter_and_free_columns(const samerun_convolution_shape *shape, int is_input_gradient,
                                                    void *result, samerun_reordered_columns *reordered);

#endif
