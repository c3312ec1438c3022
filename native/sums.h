/* Class S for any dimensions and strides. */
#ifndef SAMERUN_SUMS_H
#define SAMERUN_SUMS_H

#include <stdint.h>

#include "status.h"

/* What is done to a value before it is summed. `center` has one value for each output. */
enum { TERM_X, TERM_SQUARE, TERM_SQUARE_FROM_CENTER, TERM_ABS, TERM_PRODUCT /* x, multiplied up */, TERMS };

enum { MOST_DIMENSIONS = 64 };

/* Reduce the dimensions whose bit in `reduced_dims_mask` is set. `out`: the others in order, contiguous.
 * Strides in elements, of any sign. Nothing sums to +0.0; the product of nothing is 1. Done, or no memory. */
samerun_status samerun_sum32(int term, const float *x, const float *center_or_null, float *out, int ndim,
                             const int64_t *size, const int64_t *stride, uint64_t reduced_dims_mask);
samerun_status samerun_sum64(int term, const double *x, const double *center, double *out, int ndim,
                             const int64_t *size, const int64_t *stride, uint64_t reduced_dims_mask);

/* The same for each of `rows` rows of n values that lie side by side, and the results divided by `divisor` rounded
 * to their type, unless that is 1. */
samerun_status samerun_row_sums32(int term, const float *x, const float *center, float *out, int64_t rows, int64_t n,
                                  double divisor);
samerun_status samerun_row_sums64(int term, const double *x, const double *center, double *out, int64_t rows, int64_t n,
                                  double divisor);

/* Running sums (or products) in ascending order along the middle of [outer, n, inner]. */
void samerun_cumulate32(int is_product, const float *x, float *out, int64_t outer, int64_t n, int64_t inner);
void samerun_cumulate64(int is_product, const double *x, double *out, int64_t outer, int64_t n, int64_t inner);

#endif
