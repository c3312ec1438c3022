/* Copies of an image with its padding, and of a weight in another order. */
#ifndef SAMERUN_SPREAD_H
#define SAMERUN_SPREAD_H

#include "convolution_shape.h"

/* A copy in which value i of a dimension of `in_size` lies at pad_before + i * step of `padded_size`, if inside; zeros elsewhere. Lines
 * are taken in `phases` (samerun_polyphase_index); padded_size[2] is a multiple of that. The copy may be read 64 bytes beyond its end, and
 * belongs to SCRATCH_IMAGE. NULL where none is needed (`*needs_copy` 0) or without memory (`*needs_copy` 1). */
char *samerun_copy_image_padded(const void *src, int64_t channels, const int64_t *in_size, const int64_t *padded_size,
                                const int64_t *step, const int64_t *pad_before, int64_t phases, size_t real,
                                int *needs_copy);

/* The weight [groups * outputs, inputs, taps] as [groups * inputs, outputs, taps], numbers of a group each; belongs to
 * SCRATCH_WEIGHT, NULL without memory. */
void *samerun_copy_weight_transposed(const void *weight, const samerun_shape *shape, size_t real);

#endif
