/* Copies of an image with its padding and of a weight in another order; results written to their places. */
#ifndef SAMERUN_CONVOLUTION_COPIES_H
#define SAMERUN_CONVOLUTION_COPIES_H

#include <stddef.h>

#include "convolution_shape.h"
#include "portable.h"

/* A copy in which value i of a dimension of `in_size` lies at pad_before + i * step of `padded_size`, if inside;
 * zeros elsewhere. Lines are kept in `stride_phases` phases (samerun_polyphase_index); padded_size[2] is a multiple
 * of that. The copy may be read 64 bytes beyond its end, and belongs to SCRATCH_IMAGE. NULL where none is needed
 * (`*needs_copy` 0) or without memory (`*needs_copy` 1). */
char *samerun_copy_padded_to_scratch_if_needed(const void *src, int64_t channels, const int64_t *in_size,
                                               const int64_t *padded_size, const int64_t *step,
                                               const int64_t *pad_before, int64_t stride_phases, size_t element_size,
                                               int *needs_copy);

/* The weight [groups * outputs, inputs, taps] as [groups * inputs, outputs, taps], numbers of a group each; belongs to
 * SCRATCH_WEIGHT, NULL without memory. */
void *samerun_borrow_transposed_weight_or_null(const void *weight, const samerun_convolution_shape *shape,
                                               size_t element_size);

#define SAMERUN_PUT(type, bits, sign)                                               \
    do {                                                                            \
        const type plus = bias_or_null ? ((const type *)bias_or_null)[channel] : 0; \
        for (int64_t w = 0; w < n; w++) {                                           \
            const type value = src ? ((const type *)src)[w] : 0;                    \
            has_negative_zero |= bits(value) == sign;                               \
            ((type *)dst)[w * dst_step] = bias_or_null ? value + plus : value;      \
        }                                                                           \
    } while (0)

/* n results of a channel (NULL: zeros) to places a step apart, plus bias (or NULL). Whether one of them is -0.0. */
PORTABLE int samerun_store_line_has_negative_zero(const char *src, char *dst, int64_t n, int64_t dst_step,
                                                  const void *bias_or_null, int64_t channel, size_t element_size) {
    int has_negative_zero = 0;
    if (element_size == 8) SAMERUN_PUT(double, bits_of_double, 0x8000000000000000U);
    else SAMERUN_PUT(float, bits_of_float, 0x80000000U);
    return has_negative_zero;
}
#undef SAMERUN_PUT

#endif
