/* Convolutions without the taps that lie beyond the border of the image. */
#ifndef SAMERUN_BORDERS_H
#define SAMERUN_BORDERS_H

#include "convolution_shape.h"
#include "status.h"

/* A product in which columns meet some of the taps only, in an order of its own. */
typedef struct {
    uint64_t *met;
    samerun_axis to; /* where its columns' results go */
    char *found;     /* the results, which belong to SCRATCH_PHASE */
    const void *bias;
    int64_t columns;
    size_t real;
} samerun_borders;

/* Change a product, forward or `turned` for the gradient of the input, where its taps beyond the border are worth leaving
 * out. Done: samerun_put_back is due. Declined: the product is unchanged. */
samerun_status samerun_leave_out_borders(const samerun_shape *s, int turned, int is_double, const void *weight,
                                         samerun_multiplication *product, samerun_borders *borders);
/* Put the results in their places. Declines where their bits might not be those of the product with zeros. */
samerun_status samerun_put_back(const samerun_shape *s, int turned, void *result, samerun_borders *borders);

#endif
