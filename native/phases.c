/* The gradient of the input of a convolution with strides, phase by phase.
 *
 * Positions of the input whose remainder by the stride is the same meet the same taps at neighbouring values of the
 * gradient: a product without the zeros in between, whose blocks of k end where those of the whole product end. A zero
 * that is left out changes no bit as long as the weight it would meet is finite, with one exception: a sum that has
 * underflowed to -0.0 becomes +0.0 when +0.0 is added. So weights are looked at first, results for a -0.0 at the end.
 */
#include <stdlib.h>

#include "phases.h"
#include "pool.h"
#include "put_line.h"
#include "scratch.h"
#include "spread.h"

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
static void gradient_margins(const samerun_shape *s, int64_t *left, int64_t *size) {
    for (int dim = 0; dim < 3; dim++) {
        const int64_t reach = (s->taps[dim] - 1) * s->dilation[dim] - s->padding[dim];
        left[dim] = reach > 0 ? reach / s->stride[dim] : 0;
        size[dim] = (s->in[dim] - 1 + s->padding[dim]) / s->stride[dim] + 1;
        size[dim] = left[dim] + (size[dim] > s->out[dim] ? size[dim] : s->out[dim]);
    }
}

/* The tables of k: the taps that are left, and where the blocks of the whole product end. */
static int tables_of_k(const phase_t *phase, samerun_multiplication *product, const int64_t *left,
                       const int64_t *size) {
    const samerun_shape *s = phase->s;
    const int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, all = samerun_volume(s->taps);
    int64_t at = 0, blocks = 0, block = 0;
    product->k = out * samerun_volume(phase->taps);
    product->block_end = malloc((size_t)(product->k + 1) * sizeof *product->block_end);
    if (!samerun_axis_new(&product->a_k, product->k) || !samerun_axis_new(&product->b_k, product->k)) return 0;
    if (!product->block_end) return 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t d = 0; d < phase->taps[0]; d++)
            for (int64_t h = 0; h < phase->taps[1]; h++)
                for (int64_t w = 0; w < phase->taps[2]; w++, at++) {
                    const int64_t tap =
                        (phase->tap[0][d] * s->taps[1] + phase->tap[1][h]) * s->taps[2] + phase->tap[2][w];
                    if (at && (o * all + tap) / SAMERUN_BLOCK != block) product->block_end[blocks++] = at;
                    block = (o * all + tap) / SAMERUN_BLOCK;
                    product->a_k.offset[at] = o * in * all + tap;
                    product->b_k.offset[at] =
                        ((o * size[0] + left[0] + phase->shift[0][d]) * size[1] + left[1] + phase->shift[1][h]) *
                            size[2] +
                        left[2] + phase->shift[2][w];
                }
    product->block_end[blocks] = product->k;
    samerun_axis_runs(&product->a_k);
    samerun_axis_runs(&product->b_k);
    return 1;
}

static int tables_of_result(const phase_t *phase, samerun_multiplication *product, const int64_t *size) {
    const samerun_shape *s = phase->s;
    const int64_t in = s->inputs / s->groups, all = samerun_volume(s->taps), area = samerun_volume(size);
    if (!samerun_axis_new(&product->a_rows, product->m) || !samerun_axis_new(&product->b_columns, product->n) ||
        !samerun_axis_new(&product->c_columns, product->n))
        return 0;
    for (int64_t i = 0; i < in; i++) product->a_rows.offset[i] = i * all;
    int64_t at = 0;
    for (int64_t image = 0; image < s->images; image++)
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++)
                for (int64_t w = 0; w < phase->count[2]; w++, at++) {
                    product->b_columns.offset[at] = image * s->outputs * area + (d * size[1] + h) * size[2] + w;
                    product->c_columns.offset[at] = at;
                }
    samerun_axis_runs(&product->a_rows);
    samerun_axis_runs(&product->b_columns);
    samerun_axis_runs(&product->c_columns);
    return samerun_steps(&product->a_batch, s->groups, s->outputs / s->groups * in * all) &&
           samerun_steps(&product->b_batch, s->groups, s->outputs / s->groups * area) &&
           samerun_steps(&product->c_batch, s->groups, in * product->n);
}

static void channels_range(void *args, int64_t begin, int64_t end) {
    phase_t *phase = args;
    const samerun_shape *s = phase->s;
    const int64_t pixels = samerun_volume(phase->count), n = phase->count[2], step = s->stride[2];
    int odd = 0;
    for (int64_t i = begin; i < end; i++) {
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

static samerun_status compute_phase(phase_t *phase, samerun_multiplication product, int is_double, const int64_t *left,
                                    const int64_t *size) {
    const samerun_shape *s = phase->s;
    const int64_t pixels = samerun_volume(phase->count);
    product.batches = s->groups, product.m = s->inputs / s->groups, product.n = product.c_row = s->images * pixels;
    phase->from = NULL;
    char *found = NULL;
    const size_t bytes = (size_t)(s->inputs * product.n) * phase->real;
    if (samerun_volume(phase->taps)) {
        found = samerun_scratch(SCRATCH_PHASE, bytes);
        if (!found) return SAMERUN_NO_MEMORY;
        product.c = found;
        const int made = tables_of_k(phase, &product, left, size) && tables_of_result(phase, &product, size);
        if (samerun_multiply_and_free(&product, is_double, made)) {
            samerun_scratch_done(SCRATCH_PHASE, found);
            return SAMERUN_NO_MEMORY;
        }
        phase->from = found;
    }
    samerun_parallel(s->images * s->inputs, 1 + 16384 / (1 + pixels), channels_range, phase);
    if (found) samerun_scratch_done(SCRATCH_PHASE, found);
    return phase->negative_zero ? SAMERUN_DECLINED : SAMERUN_DONE;
}

samerun_status samerun_gradient_by_phases(const samerun_shape *s, int is_double, const void *weight,
                                          const void *gradient, const void *bias, void *result) {
    const int64_t weights = s->outputs * (s->inputs / s->groups) * samerun_volume(s->taps);
    if (samerun_volume(s->stride) == 1 || !samerun_volume(s->in) || !samerun_all_finite(weight, weights, is_double))
        return SAMERUN_DECLINED;
    phase_t phase = {.s = s, .real = is_double ? 8 : 4, .bias = bias, .to = result};
    int64_t left[3], size[3], room = 1, *tables;
    for (int dim = 0; dim < 3; dim++) room += 2 * s->taps[dim];
    tables = malloc((size_t)room * sizeof *tables);
    if (!tables) return SAMERUN_NO_MEMORY;
    for (int64_t dim = 0, at = 0; dim < 3; at += 2 * s->taps[dim++])
        phase.tap[dim] = tables + at, phase.shift[dim] = tables + at + s->taps[dim];
    gradient_margins(s, left, size);
    samerun_status status = SAMERUN_DONE;
    int own;
    static const int64_t one[3] = {1, 1, 1};
    char *copy = samerun_spread(gradient, s->images * s->outputs, s->out, size, one, left, 1, phase.real, &own);
    if (own && !copy) status = SAMERUN_NO_MEMORY;
    const samerun_multiplication product = {.a = weight, .b = own ? copy : gradient, .b_slack = own};
    if (status == SAMERUN_DONE) do {
            for (int dim = 0; dim < 3; dim++) choose_taps(&phase, dim);
            status = compute_phase(&phase, product, is_double, left, size);
        } while (status == SAMERUN_DONE && next_phase(&phase));
    if (own && copy) samerun_scratch_done(SCRATCH_IMAGE, copy);
    free(tables);
    return status;
}
