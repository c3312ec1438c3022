/* What the ways of a convolution share: its shape, and the copy of an image with its padding. */
#ifndef SAMERUN_CONVOLUTION_H
#define SAMERUN_CONVOLUTION_H

#include "multiply.h"
#include "portable.h"

/* As Python hands them over; sizes and settings of the three dimensions each. */
typedef struct {
    int64_t images, groups, inputs, outputs; /* channels in all */
    int64_t in[3], out[3], taps[3], stride[3], padding[3], dilation[3];
} samerun_shape;

static inline int64_t samerun_volume(const int64_t *size) { return size[0] * size[1] * size[2]; }

/* Where place `place` of a line of `size` lies when places that are `apart` from each other follow each other. */
static inline int64_t samerun_place(int64_t place, int64_t size, int64_t apart) {
    return apart == 1 ? place : place % apart * (size / apart) + place / apart;
}

/* A copy in which value i of a dimension of `in` lies at left + i * step of `size`, if inside; zeros elsewhere. Lines
 * are taken `apart` (samerun_place); size[2] is a multiple of that. The copy may be read 64 bytes beyond its end, and
 * belongs to SCRATCH_IMAGE. NULL where none is needed (`*own` 0) or without memory (`*own` 1). */
char *samerun_spread(const void *from, int64_t channels, const int64_t *in, const int64_t *size, const int64_t *step,
                     const int64_t *left, int64_t apart, size_t real, int *own);

/* The weight [groups * outputs, inputs, taps] as [groups * inputs, outputs, taps], numbers of a group each; belongs to
 * SCRATCH_WEIGHT, NULL without memory. */
void *samerun_weight_by_inputs(const void *weight, const samerun_shape *s, size_t real);

/* The gradient of the input of a convolution with strides, or its transposed form, without the zeros that lie between the
 * values of a spread gradient. 1 done; 0 its bits might not be those of the product with zeros; -1 without memory. */
int samerun_gradient_by_phases(const samerun_shape *s, int is_double, const void *weight, const void *gradient,
                               const void *bias, void *result);

/* Whether none is infinite or NaN. */
int samerun_all_finite(const void *values, int64_t n, int is_double);

#define SAMERUN_PUT(type, bits, sign)                                       \
    do {                                                                    \
        const type plus = bias ? ((const type *)bias)[channel] : 0;         \
        for (int64_t w = 0; w < n; w++) {                                   \
            const type value = from ? ((const type *)from)[w] : 0;          \
            odd |= bits(value) == sign;                                     \
            ((type *)to)[w * step] = bias ? value + plus : value;           \
        }                                                                   \
    } while (0)

/* n results of a channel (NULL: zeros) to places a step apart, plus bias (or NULL). Whether one of them is -0.0. */
PORTABLE int samerun_put_line(const char *from, char *to, int64_t n, int64_t step, const void *bias, int64_t channel,
                              size_t real) {
    int odd = 0;
    if (real == 8)
        SAMERUN_PUT(double, bits64, 0x8000000000000000U);
    else
        SAMERUN_PUT(float, bits32, 0x80000000U);
    return odd;
}
#undef SAMERUN_PUT

/* Which part of all taps meets a value of the image, without strides in the gradient of the input: a quick estimate. */
double samerun_part_met(const samerun_shape *s, int turned);

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
 * out. 1 changed: samerun_put_back is due; 0 not; -1 without memory. */
int samerun_leave_out_borders(const samerun_shape *s, int turned, int is_double, const void *weight,
                              samerun_multiplication *it, samerun_borders *borders);
/* 1 done; 0 its bits might not be those of the product with zeros. */
int samerun_put_back(const samerun_shape *s, int turned, void *result, samerun_borders *borders);

#endif
