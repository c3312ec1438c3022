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
    size_t real;
} samerun_reordered_columns;

/* Change a product, forward or `backward` for the gradient of the input, where its taps beyond the border are worth leaving
 * out. Done: samerun_scatter_reordered_columns is due. Declined: the product is unchanged. */
samerun_status samerun_skip_padding_taps(const samerun_shape *shape, int backward, int is_double, const void *weight,
                                         samerun_matrix_product *product, samerun_reordered_columns *borders);
/* Put the results in their places. Declines where their bits might not be those of the product with zeros. */
samerun_status samerun_scatter_reordered_columns(const samerun_shape *shape, int backward, void *result,
                                                 samerun_reordered_columns *borders);

#endif
