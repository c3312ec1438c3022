#include "convolution_shape.h"

#include "portable.h"

int samerun_all_finite(const void *values, int64_t n, int is_double) {
    int odd = 0;
    if (is_double)
        for (int64_t i = 0; i < n; i++) odd |= (~bits64(((const double *)values)[i]) & 0x7FF0000000000000U) == 0;
    else
        for (int64_t i = 0; i < n; i++) odd |= (~bits32(((const float *)values)[i]) & 0x7F800000U) == 0;
    return !odd;
}

/* How many positions i < size have 0 <= first + i * step < end. */
static int64_t positions_inside(int64_t size, int64_t first, int64_t step, int64_t end) {
    const int64_t from = first < 0 ? pieces_of(-first, step) : 0, to = first < end ? pieces_of(end - first, step) : 0;
    return from < least(to, size) ? least(to, size) - from : 0;
}

double samerun_part_met(const samerun_shape *s, int turned) {
    const int64_t *size = turned ? s->in : s->out;
    double part = 1;
    for (int dim = 0; dim < 3; dim++) {
        const int64_t end = turned ? (s->out[dim] - 1) * s->stride[dim] + 1 : s->in[dim];
        int64_t met = 0;
        for (int64_t t = 0; t < s->taps[dim]; t++)
            met += turned ? positions_inside(size[dim], s->padding[dim] - t * s->dilation[dim], 1, end)
                          : positions_inside(size[dim], t * s->dilation[dim] - s->padding[dim], s->stride[dim], end);
        part *= (double)met / (double)(size[dim] * s->taps[dim]);
    }
    return part;
}
