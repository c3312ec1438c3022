/* Copies of an image with its padding, and of a weight in another order. */
#ifndef SAMERUN_SPREAD_H
#define SAMERUN_SPREAD_H

#include "convolution_shape.h"

/* A copy in which value i of a dimension of `in` lies at left + i * step of `size`, if inside; zeros elsewhere. Lines
 * are taken `apart` (samerun_place); size[2] is a multiple of that. The copy may be read 64 bytes beyond its end, and
 * belongs to SCRATCH_IMAGE. NULL where none is needed (`*own` 0) or without memory (`*own` 1). */
char *samerun_spread(const void *from, int64_t channels, const int64_t *in, const int64_t *size, const int64_t *step,
                     const int64_t *left, int64_t apart, size_t real, int *own);

/* The weight [groups * outputs, inputs, taps] as [groups * inputs, outputs, taps], numbers of a group each; belongs to
 * SCRATCH_WEIGHT, NULL without memory. */
void *samerun_weight_by_inputs(const void *weight, const samerun_shape *s, size_t real);

#endif
