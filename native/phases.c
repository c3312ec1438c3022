/* The gradient of the input of a convolution with strides, phase by phase.
 *
 * Positions of the input whose remainder by the stride is the same meet the same taps at neighbouring values of the
 * gradient: a product without the zeros in between, whose blocks of k end where those of the whole product end. A zero
 * that is left out changes no bit as long as the weight it would meet is finite, with one exception: a sum that has
 * underflowed to -0.0 becomes +0.0 when +0.0 is added. So weights are looked at first, results for a -0.0 at the end.
 */
#include <stdlib.h>

#include "convolution.h"
#include "multiply.h"
#include "pool.h"
#include "portable.h"
#include "scratch.h"

typedef struct {
    const samerun_shape *s;
    int64_t first[3], count[3];        /* positions first + i * stride, i < count */
    int64_t taps[3], *tap[3], *shift[3]; /* those that meet values of the gradient, and at which distance from i */
    size_t real;
    const char *from; /* [channels, images, count], NULL for zeros */
    const void *bias;
    char *to;
    int negative_zero;
} phase_t;

int samerun_all_finite(const void *values, int64_t n, int is_double) {
    int odd = 0;
    if (is_double)
        for (int64_t i = 0; i < n; i++) odd |= (~bits64(((const double *)values)[i]) & 0x7FF0000000000000U) == 0;
    else
        for (int64_t i = 0; i < n; i++) odd |= (~bits32(((const float *)values)[i]) & 0x7F800000U) == 0;
    return !odd;
}

/* Tap t of position i of the input meets value (i + padding - t * dilation) / stride of the gradient, where that is whole. */
static void choose_taps(phase_t *phase, int dim) {
    const samerun_shape *s = phase->s;
    phase->taps[dim] = 0;
    for (int64_t t = 0; t < s->taps[dim]; t++) {
        const int64_t reach = phase->first[dim] + s->padding[dim] - t * s->dilation[dim];
        if (reach % s->stride[dim]) continue;
        phase->tap[dim][phase->taps[dim]] = t;
        phase->shift[dim][phase->taps[dim]++] = reach / s->stride[dim];
    }
    phase->count[dim] = (s->in[dim] - phase->first[dim] + s->stride[dim] - 1) / s->stride[dim];
}

static int next_phase(phase_t *phase) {
    for (int dim = 2; dim >= 0; dim--) {
        const int64_t all = phase->s->stride[dim] < phase->s->in[dim] ? phase->s->stride[dim] : phase->s->in[dim];
        if (++phase->first[dim] < all) return 1;
        phase->first[dim] = 0;
    }
    return 0;
}

/* How far beyond the gradient the taps of all phases reach: `left` before it, and `size` with what is behind. */
static void margins(const samerun_shape *s, int64_t *left, int64_t *size) {
    for (int dim = 0; dim < 3; dim++) {
        const int64_t reach = (s->taps[dim] - 1) * s->dilation[dim] - s->padding[dim];
        left[dim] = reach > 0 ? reach / s->stride[dim] : 0;
        size[dim] = (s->in[dim] - 1 + s->padding[dim]) / s->stride[dim] + 1;
        size[dim] = left[dim] + (size[dim] > s->out[dim] ? size[dim] : s->out[dim]);
    }
}

/* The tables of k: the taps that are left, and where the blocks of the whole product end. */
static int tables_of_k(const phase_t *phase, samerun_multiplication *it, const int64_t *left, const int64_t *size) {
    const samerun_shape *s = phase->s;
    const int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, all = samerun_volume(s->taps);
    int64_t at = 0, blocks = 0, block = 0;
    it->k = out * samerun_volume(phase->taps);
    it->block_end = malloc((size_t)(it->k + 1) * sizeof *it->block_end);
    if (!samerun_axis_new(&it->a_k, it->k) || !samerun_axis_new(&it->b_k, it->k) || !it->block_end) return 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t d = 0; d < phase->taps[0]; d++)
            for (int64_t h = 0; h < phase->taps[1]; h++)
                for (int64_t w = 0; w < phase->taps[2]; w++, at++) {
                    const int64_t tap = (phase->tap[0][d] * s->taps[1] + phase->tap[1][h]) * s->taps[2] + phase->tap[2][w];
                    if (at && (o * all + tap) / SAMERUN_BLOCK != block) it->block_end[blocks++] = at;
                    block = (o * all + tap) / SAMERUN_BLOCK;
                    it->a_k.offset[at] = o * in * all + tap;
                    it->b_k.offset[at] =
                        ((o * size[0] + left[0] + phase->shift[0][d]) * size[1] + left[1] + phase->shift[1][h]) * size[2] +
                        left[2] + phase->shift[2][w];
                }
    it->block_end[blocks] = it->k;
    samerun_axis_runs(&it->a_k);
    samerun_axis_runs(&it->b_k);
    return 1;
}

static int tables_of_result(const phase_t *phase, samerun_multiplication *it, const int64_t *size) {
    const samerun_shape *s = phase->s;
    const int64_t in = s->inputs / s->groups, all = samerun_volume(s->taps), area = samerun_volume(size);
    if (!samerun_axis_new(&it->a_rows, it->m) || !samerun_axis_new(&it->b_columns, it->n) ||
        !samerun_axis_new(&it->c_columns, it->n))
        return 0;
    for (int64_t i = 0; i < in; i++) it->a_rows.offset[i] = i * all;
    int64_t at = 0;
    for (int64_t image = 0; image < s->images; image++)
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++)
                for (int64_t w = 0; w < phase->count[2]; w++, at++) {
                    it->b_columns.offset[at] = image * s->outputs * area + (d * size[1] + h) * size[2] + w;
                    it->c_columns.offset[at] = at;
                }
    samerun_axis_runs(&it->a_rows);
    samerun_axis_runs(&it->b_columns);
    samerun_axis_runs(&it->c_columns);
    return samerun_steps(&it->a_batch, s->groups, s->outputs / s->groups * in * all) &&
           samerun_steps(&it->b_batch, s->groups, s->outputs / s->groups * area) &&
           samerun_steps(&it->c_batch, s->groups, in * it->n);
}

static void some_channels(void *given, int64_t first, int64_t last) {
    phase_t *phase = given;
    const samerun_shape *s = phase->s;
    const int64_t pixels = samerun_volume(phase->count), n = phase->count[2], step = s->stride[2];
    int odd = 0;
    for (int64_t i = first; i < last; i++) {
        const int64_t image = i / s->inputs, channel = i % s->inputs;
        const char *line = phase->from;
        if (line) line += (size_t)((channel * s->images + image) * pixels) * phase->real;
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++) {
                const int64_t z = phase->first[0] + d * s->stride[0], y = phase->first[1] + h * s->stride[1];
                const int64_t place = ((i * s->in[0] + z) * s->in[1] + y) * s->in[2] + phase->first[2];
                odd |= samerun_put_line(line, phase->to + (size_t)place * phase->real, n, step, phase->bias, channel,
                                        phase->real);
                if (line) line += (size_t)n * phase->real;
            }
    }
    if (odd) __atomic_store_n(&phase->negative_zero, 1, __ATOMIC_RELAXED);
}

static int one_phase(phase_t *phase, samerun_multiplication it, int is_double, const int64_t *left, const int64_t *size) {
    const samerun_shape *s = phase->s;
    const int64_t pixels = samerun_volume(phase->count);
    it.batches = s->groups, it.m = s->inputs / s->groups, it.n = it.c_row = s->images * pixels;
    phase->from = NULL;
    char *found = NULL;
    const size_t bytes = (size_t)(s->inputs * it.n) * phase->real;
    if (samerun_volume(phase->taps)) {
        found = samerun_scratch(SCRATCH_PHASE, bytes);
        if (!found) return -1;
        it.c = found;
        const int made = tables_of_k(phase, &it, left, size) && tables_of_result(phase, &it, size);
        if (samerun_multiply_and_free(&it, is_double, made)) {
            samerun_scratch_done(SCRATCH_PHASE, found);
            return -1;
        }
        phase->from = found;
    }
    samerun_parallel(s->images * s->inputs, 1 + 16384 / (1 + pixels), some_channels, phase);
    if (found) samerun_scratch_done(SCRATCH_PHASE, found);
    return !phase->negative_zero;
}

int samerun_gradient_by_phases(const samerun_shape *s, int is_double, const void *weight, const void *gradient,
                               const void *bias, void *result) {
    const int64_t weights = s->outputs * (s->inputs / s->groups) * samerun_volume(s->taps);
    if (samerun_volume(s->stride) == 1 || !samerun_volume(s->in) || !samerun_all_finite(weight, weights, is_double)) return 0;
    phase_t phase = {.s = s, .real = is_double ? 8 : 4, .bias = bias, .to = result};
    int64_t left[3], size[3], room = 1, *tables;
    for (int dim = 0; dim < 3; dim++) room += 2 * s->taps[dim];
    tables = malloc((size_t)room * sizeof *tables);
    if (!tables) return -1;
    for (int64_t dim = 0, at = 0; dim < 3; at += 2 * s->taps[dim++])
        phase.tap[dim] = tables + at, phase.shift[dim] = tables + at + s->taps[dim];
    margins(s, left, size);
    int own, answer = 1;
    static const int64_t one[3] = {1, 1, 1};
    char *copy = samerun_spread(gradient, s->images * s->outputs, s->out, size, one, left, 1, phase.real, &own);
    if (own && !copy) answer = -1;
    const samerun_multiplication it = {.a = weight, .b = own ? copy : gradient, .b_slack = own};
    if (answer == 1) do {
        for (int dim = 0; dim < 3; dim++) choose_taps(&phase, dim);
        answer = one_phase(&phase, it, is_double, left, size);
    } while (answer == 1 && next_phase(&phase));
    if (own && copy) samerun_scratch_done(SCRATCH_IMAGE, copy);
    free(tables);
    return answer;
}
