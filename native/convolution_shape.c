#include "convolution_shape.h"

#include "portable.h"

int samerun_all_finite(const void *values, int64_t n, int is_double) {
    int has_nonfinite = 0;
    if (is_double)
        for (int64_t i = 0; i < n; i++)
            has_nonfinite |= (~bits_of_double(((const double *)values)[i]) & 0x7FF0000000000000U) == 0;
    else
        for (int64_t i = 0; i < n; i++)
            has_nonfinite |= (~bits_of_float(((const float *)values)[i]) & 0x7F800000U) == 0;
    return !has_nonfinite;
}

/* How many positions i < size have 0 <= first + i * step < end. */
static int64_t count_positions_inside(int64_t size, int64_t first, int64_t step, int64_t end) {
    const int64_t from = first < 0 ? ceil_divide(-first, step) : 0,
                  to = first < end ? ceil_divide(end - first, step) : 0;
    return from < min_int64(to, size) ? min_int64(to, size) - from : 0;
}

double samerun_estimate_taps_inside_fraction(const samerun_convolution_shape *shape, int is_input_gradient) {
    const int64_t *size = is_input_gradient ? shape->in : shape->out;
    double part = 1;
    for (int dim = 0; dim < 3; dim++) {
        const int64_t end = is_input_gradient ? (shape->out[dim] - 1) * shape->stride[dim] + 1 : shape->in[dim];
        int64_t met = 0;
        for (int64_t t = 0; t < shape->taps[dim]; t++)
            met += is_input_gradient
                       ? count_positions_inside(size[dim], shape->padding[dim] - t * shape->dilation[dim], 1, end)
                       : count_positions_inside(size[dim], t * shape->dilation[dim] - shape->padding[dim],
                                                shape->stride[dim], end);
        part *= (double)met / (double)(size[dim] * shape->taps[dim]);
    }
    return part;
}
