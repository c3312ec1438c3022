/* The shape of a convolution, and what can be told from it and from the values alone. */
#ifndef SAMERUN_CONVOLUTION_SHAPE_H
#define SAMERUN_CONVOLUTION_SHAPE_H

#include "gemm.h"

/* As Python hands them over; sizes and settings of the three dimensions each. */
typedef struct {
    int64_t images, groups, inputs, outputs; /* channels in all */
    int64_t in[3], out[3], taps[3], stride[3], padding[3], dilation[3];
} samerun_convolution_shape;

static inline int64_t samerun_volume(const int64_t *size) { return size[0] * size[1] * size[2]; }

/* Where value `index` of a line of `line_size` lies when the line is kept phase by phase: first the values 0, phases,
 * 2 phases, ..., then 1, phases + 1, ... */
static inline int64_t samerun_polyphase_index(int64_t index, int64_t line_size, int64_t stride_phases) {
    return stride_phases == 1 ? index : index % stride_phases * (line_size / stride_phases) + index / stride_phases;
}

/* Whether none is infinite or NaN. */
int samerun_all_finite(const void *values, int64_t n, int is_double);

/* Which part of all taps meets a value of the image, without strides in the gradient of the input: a quick estimate. */
double samerun_estimate_taps_inside_fraction(const samerun_convolution_shape *shape, int is_input_gradient);

#endif
