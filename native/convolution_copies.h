/* Copies of an image with its padding and of a weight in another order; results written to their places. */
#ifndef SAMERUN_CONVOLUTION_COPIES_H
#define SAMERUN_CONVOLUTION_COPIES_H

#include <stddef.h>

#include "convolution_shape.h"
#include "portable.h"

/* A copy in which value i of a dimension of `in_size` lies at pad_before + i * step of `padded_size`, if inside; zeros
 * elsewhere. Lines are kept in `phases` phases (samerun_polyphase_index); padded_size[2] is a multiple of that. The copy
 * may be read 64 bytes beyond its end, and belongs to SCRATCH_IMAGE. NULL where none is needed (`*needs_copy` 0) or without memory (`*needs_copy` 1). */
char *samerun_copy_image_padded(const void *src, int64_t channels, const int64_t *in_size, const int64_t *padded_size,
                                const int64_t *step, const int64_t *pad_before, int64_t phases, size_t real,
                                int *needs_copy);

/* The weight [groups * outputs, inputs, taps] as [groups * inputs, outputs, taps], numbers of a group each; belongs to
 * SCRATCH_WEIGHT, NULL without memory. */
void *samerun_copy_weight_transposed(const void *weight, const samerun_shape *shape, size_t real);

#define SAMERUN_PUT(type, bits, sign)                               \
    do {                                                            \
        const type plus = bias ? ((const type *)bias)[channel] : 0; \
        for (int64_t w = 0; w < n; w++) {                           \
            const type value = from ? ((const type *)from)[w] : 0;  \
            odd |= bits(value) == sign;                             \
            ((type *)to)[w * step] = bias ? value + plus : value;   \
        }                                                           \
    } while (0)

/* n results of a channel (NULL: zeros) to places a step apart, plus bias (or NULL). Whether one of them is -0.0. */
PORTABLE int samerun_write_line_plus_bias(const char *from, char *to, int64_t n, int64_t step, const void *bias,
                                          int64_t channel, size_t real) {
    int odd = 0;
    if (real == 8) SAMERUN_PUT(double, bits_of_double, 0x8000000000000000U);
    else SAMERUN_PUT(float, bits_of_float, 0x80000000U);
    return odd;
}
#undef SAMERUN_PUT

#endif
