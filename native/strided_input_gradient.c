/* The gradient of the input of a convolution with strides, phase by phase.
 *
 * Positions of the input whose remainder by the stride is the same meet the same taps at neighbouring values of the
 * gradient: a product without the zeros in between, whose blocks of k end where those of the whole product end. A zero
 * that is left out changes no bit as long as the weight it would meet is finite, with one exception: a sum that has
 * underflowed to -0.0 becomes +0.0 when +0.0 is added. So weights are looked at first, results for a -0.0 at the end.
 */
#include <stdlib.h>

#include "strided_input_gradient.h"
#include "thread_pool.h"
#include "scratch.h"
#include "convolution_copies.h"

typedef struct {
    const samerun_shape *shape;
    int64_t first[3], count[3];        /* positions first + i * stride, i < count */
    int64_t taps[3], *tap[3], *shift[3]; /* those that meet values of the gradient, and at which distance from i */
    size_t real;
    const char *from; /* [channels, images, count], NULL for zeros */
    const void *bias;
    char *to;
    int negative_zero;
} phase_t;

/* Tap t of position i of the input meets value (i + padding - t * dilation) / stride of the gradient, where that is whole. */
static void select_taps_of_phase(phase_t *phase, int dim) {
    const samerun_shape *shape = phase->shape;
    phase->taps[dim] = 0;
    for (int64_t t = 0; t < shape->taps[dim]; t++) {
        const int64_t reach = phase->first[dim] + shape->padding[dim] - t * shape->dilation[dim];
        if (reach % shape->stride[dim]) continue;
        phase->tap[dim][phase->taps[dim]] = t;
        phase->shift[dim][phase->taps[dim]++] = reach / shape->stride[dim];
    }
    phase->count[dim] = (shape->in[dim] - phase->first[dim] + shape->stride[dim] - 1) / shape->stride[dim];
}

static int advance_to_next_phase(phase_t *phase) {
    for (int dim = 2; dim >= 0; dim--) {
        const int64_t all =
            phase->shape->stride[dim] < phase->shape->in[dim] ? phase->shape->stride[dim] : phase->shape->in[dim];
        if (++phase->first[dim] < all) return 1;
        phase->first[dim] = 0;
    }
    return 0;
}

/* How far beyond the gradient the taps of all phases reach: `left` before it, and `size` with what is behind. */
static void compute_gradient_padding(const samerun_shape *shape, int64_t *pad_before, int64_t *size) {
    for (int dim = 0; dim < 3; dim++) {
        const int64_t reach = (shape->taps[dim] - 1) * shape->dilation[dim] - shape->padding[dim];
        pad_before[dim] = reach > 0 ? reach / shape->stride[dim] : 0;
        size[dim] = (shape->in[dim] - 1 + shape->padding[dim]) / shape->stride[dim] + 1;
        size[dim] = pad_before[dim] + (size[dim] > shape->out[dim] ? size[dim] : shape->out[dim]);
    }
}

/* The tables of k: the taps that are left, and where the blocks of the whole product end. */
static int build_k_tables(const phase_t *phase, samerun_matrix_product *product, const int64_t *pad_before,
                          const int64_t *size) {
    const samerun_shape *shape = phase->shape;
    const int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
                  all = samerun_volume(shape->taps);
    int64_t at = 0, blocks = 0, block = 0;
    product->k = out * samerun_volume(phase->taps);
    product->block_end = malloc((size_t)(product->k + 1) * sizeof *product->block_end);
    if (!samerun_allocate_offset_table(&product->a_k, product->k) ||
        !samerun_allocate_offset_table(&product->b_k, product->k))
        return 0;
    if (!product->block_end) return 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t d = 0; d < phase->taps[0]; d++)
            for (int64_t h = 0; h < phase->taps[1]; h++)
                for (int64_t w = 0; w < phase->taps[2]; w++, at++) {
                    const int64_t tap =
                        (phase->tap[0][d] * shape->taps[1] + phase->tap[1][h]) * shape->taps[2] + phase->tap[2][w];
                    if (at && (o * all + tap) / SAMERUN_BLOCK != block) product->block_end[blocks++] = at;
                    block = (o * all + tap) / SAMERUN_BLOCK;
                    product->a_k.offset[at] = o * in * all + tap;
                    product->b_k.offset[at] = ((o * size[0] + pad_before[0] + phase->shift[0][d]) * size[1] +
                                               pad_before[1] + phase->shift[1][h]) *
                                                  size[2] +
                                              pad_before[2] + phase->shift[2][w];
                }
    product->block_end[blocks] = product->k;
    samerun_find_runs(&product->a_k);
    samerun_find_runs(&product->b_k);
    return 1;
}

static int build_result_tables(const phase_t *phase, samerun_matrix_product *product, const int64_t *size) {
    const samerun_shape *shape = phase->shape;
    const int64_t in = shape->inputs / shape->groups, all = samerun_volume(shape->taps), area = samerun_volume(size);
    if (!samerun_allocate_offset_table(&product->a_rows, product->m) ||
        !samerun_allocate_offset_table(&product->b_columns, product->n) ||
        !samerun_allocate_offset_table(&product->c_columns, product->n))
        return 0;
    for (int64_t i = 0; i < in; i++) product->a_rows.offset[i] = i * all;
    int64_t at = 0;
    for (int64_t image = 0; image < shape->images; image++)
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++)
                for (int64_t w = 0; w < phase->count[2]; w++, at++) {
                    product->b_columns.offset[at] = image * shape->outputs * area + (d * size[1] + h) * size[2] + w;
                    product->c_columns.offset[at] = at;
                }
    samerun_find_runs(&product->a_rows);
    samerun_find_runs(&product->b_columns);
    samerun_find_runs(&product->c_columns);
    return samerun_allocate_strided_offsets(&product->a_batch, shape->groups,
                                            shape->outputs / shape->groups * in * all) &&
           samerun_allocate_strided_offsets(&product->b_batch, shape->groups, shape->outputs / shape->groups * area) &&
           samerun_allocate_strided_offsets(&product->c_batch, shape->groups, in * product->n);
}

static void write_phase_channels_range(void *args, int64_t begin, int64_t end) {
    phase_t *phase = args;
    const samerun_shape *shape = phase->shape;
    const int64_t pixels = samerun_volume(phase->count), n = phase->count[2], step = shape->stride[2];
    int odd = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / shape->inputs, channel = i % shape->inputs;
        const char *line = phase->from;
        if (line) line += (size_t)((channel * shape->images + image) * pixels) * phase->real;
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++) {
                const int64_t z = phase->first[0] + d * shape->stride[0], y = phase->first[1] + h * shape->stride[1];
                const int64_t place = ((i * shape->in[0] + z) * shape->in[1] + y) * shape->in[2] + phase->first[2];
                odd |= samerun_write_line_plus_bias(line, phase->to + (size_t)place * phase->real, n, step, phase->bias,
                                                    channel, phase->real);
                if (line) line += (size_t)n * phase->real;
            }
    }
    if (odd) __atomic_store_n(&phase->negative_zero, 1, __ATOMIC_RELAXED);
}

static samerun_status compute_phase_gradient(phase_t *phase, samerun_matrix_product product, int is_double,
                                             const int64_t *pad_before, const int64_t *size) {
    const samerun_shape *shape = phase->shape;
    const int64_t pixels = samerun_volume(phase->count);
    product.batches = shape->groups, product.m = shape->inputs / shape->groups,
    product.n = product.c_row = shape->images * pixels;
    phase->from = NULL;
    char *found = NULL;
    const size_t bytes = (size_t)(shape->inputs * product.n) * phase->real;
    if (samerun_volume(phase->taps)) {
        found = samerun_borrow_scratch(SCRATCH_PHASE, bytes);
        if (!found) return SAMERUN_NO_MEMORY;
        product.c = found;
        const int made =
            build_k_tables(phase, &product, pad_before, size) && build_result_tables(phase, &product, size);
        if (samerun_multiply_and_free_tables(&product, is_double, made)) {
            samerun_release_scratch(SCRATCH_PHASE, found);
            return SAMERUN_NO_MEMORY;
        }
        phase->from = found;
    }
    samerun_parallel_for(shape->images * shape->inputs, 1 + 16384 / (1 + pixels), write_phase_channels_range, phase);
    if (found) samerun_release_scratch(SCRATCH_PHASE, found);
    return phase->negative_zero ? SAMERUN_DECLINED : SAMERUN_DONE;
}

samerun_status samerun_strided_input_gradient(const samerun_shape *shape, int is_double, const void *weight,
                                              const void *gradient, const void *bias, void *result) {
    const int64_t weights = shape->outputs * (shape->inputs / shape->groups) * samerun_volume(shape->taps);
    if (samerun_volume(shape->stride) == 1 || !samerun_volume(shape->in) ||
        !samerun_all_finite(weight, weights, is_double))
        return SAMERUN_DECLINED;
    phase_t phase = {.shape = shape, .real = is_double ? 8 : 4, .bias = bias, .to = result};
    int64_t pad_before[3], size[3], room = 1, *tables;
    for (int dim = 0; dim < 3; dim++) room += 2 * shape->taps[dim];
    tables = malloc((size_t)room * sizeof *tables);
    if (!tables) return SAMERUN_NO_MEMORY;
    for (int64_t dim = 0, at = 0; dim < 3; at += 2 * shape->taps[dim++])
        phase.tap[dim] = tables + at, phase.shift[dim] = tables + at + shape->taps[dim];
    compute_gradient_padding(shape, pad_before, size);
    samerun_status status = SAMERUN_DONE;
    int copied;
    static const int64_t one[3] = {1, 1, 1};
    char *copy = samerun_copy_image_padded(gradient, shape->images * shape->outputs, shape->out, size, one, pad_before,
                                           1, phase.real, &copied);
    if (copied && !copy) status = SAMERUN_NO_MEMORY;
    const samerun_matrix_product product = {.a = weight, .b = copied ? copy : gradient, .b_slack = copied};
    if (status == SAMERUN_DONE) do {
            for (int dim = 0; dim < 3; dim++) select_taps_of_phase(&phase, dim);
            status = compute_phase_gradient(&phase, product, is_double, pad_before, size);
        } while (status == SAMERUN_DONE && advance_to_next_phase(&phase));
    if (copied && copy) samerun_release_scratch(SCRATCH_IMAGE, copy);
    free(tables);
    return status;
}
