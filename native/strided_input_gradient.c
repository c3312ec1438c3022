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
    const samerun_convolution_shape *shape;
    int64_t first[3], count[3];        /* positions first + i * stride, i < count */
    int64_t taps[3], *tap[3], *shift[3]; /* those that meet values of the gradient, and at which distance from i */
    size_t element_size;
    const char *from; /* [channels, images, count], NULL for zeros */
    const void *bias;
    char *to;
    int negative_zero;
} stride_phase_t;

/* Tap t of position i of the input meets value (i + padding - t * dilation) / stride of the gradient, where that is
 * whole. */
static void select_taps_of_phase(stride_phase_t *phase, int dim) {
    const samerun_convolution_shape *shape = phase->shape;
    phase->taps[dim] = 0;
    for (int64_t t = 0; t < shape->taps[dim]; t++) {
        const int64_t reach = phase->first[dim] + shape->padding[dim] - t * shape->dilation[dim];
        if (reach % shape->stride[dim]) continue;
        phase->tap[dim][phase->taps[dim]] = t;
        phase->shift[dim][phase->taps[dim]++] = reach / shape->stride[dim];
    }
    phase->count[dim] = (shape->in[dim] - phase->first[dim] + shape->stride[dim] - 1) / shape->stride[dim];
}

static int try_advance_to_next_phase(stride_phase_t *phase) {
    for (int dim = 2; dim >= 0; dim--) {
        const int64_t all =
            phase->shape->stride[dim] < phase->shape->in[dim] ? phase->shape->stride[dim] : phase->shape->in[dim];
        if (++phase->first[dim] < all) return 1;
        phase->first[dim] = 0;
    }
    return 0;
}

/* How far beyond the gradient the taps of all phases reach: `left` before it, and `padded_size` with what is behind. */
static void compute_gradient_padding(const samerun_convolution_shape *shape, int64_t *pad_before,
                                     int64_t *padded_size) {
    for (int dim = 0; dim < 3; dim++) {
        const int64_t reach = (shape->taps[dim] - 1) * shape->dilation[dim] - shape->padding[dim];
        pad_before[dim] = reach > 0 ? reach / shape->stride[dim] : 0;
        padded_size[dim] = (shape->in[dim] - 1 + shape->padding[dim]) / shape->stride[dim] + 1;
        padded_size[dim] = pad_before[dim] + (padded_size[dim] > shape->out[dim] ? padded_size[dim] : shape->out[dim]);
    }
}

/* The tables of k: the taps that are left, and where the blocks of the whole product end. */
static bool build_k_offset_tables(const stride_phase_t *phase, samerun_gemm *gemm, const int64_t *pad_before,
                                  const int64_t *padded_size) {
    const samerun_convolution_shape *shape = phase->shape;
    const int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
                  all = samerun_volume(shape->taps);
    int64_t at = 0, blocks = 0, block = 0;
    gemm->k = out * samerun_volume(phase->taps);
    gemm->block_end = malloc((size_t)(gemm->k + 1) * sizeof *gemm->block_end);
    if (!samerun_allocate_offset_table(&gemm->a_k, gemm->k) || !samerun_allocate_offset_table(&gemm->b_k, gemm->k))
        return 0;
    if (!gemm->block_end) return 0;
    for (int64_t o = 0; o < out; o++)
        for (int64_t d = 0; d < phase->taps[0]; d++)
            for (int64_t h = 0; h < phase->taps[1]; h++)
                for (int64_t w = 0; w < phase->taps[2]; w++, at++) {
                    const int64_t tap =
                        (phase->tap[0][d] * shape->taps[1] + phase->tap[1][h]) * shape->taps[2] + phase->tap[2][w];
                    if (at && (o * all + tap) / SAMERUN_BLOCK != block) gemm->block_end[blocks++] = at;
                    block = (o * all + tap) / SAMERUN_BLOCK;
                    gemm->a_k.offset[at] = o * in * all + tap;
                    gemm->b_k.offset[at] = ((o * padded_size[0] + pad_before[0] + phase->shift[0][d]) * padded_size[1] +
                                            pad_before[1] + phase->shift[1][h]) *
                                               padded_size[2] +
                                           pad_before[2] + phase->shift[2][w];
                }
    gemm->block_end[blocks] = gemm->k;
    samerun_fill_run_lengths(&gemm->a_k);
    samerun_fill_run_lengths(&gemm->b_k);
    return 1;
}

static bool build_row_and_column_offset_tables(const stride_phase_t *phase, samerun_gemm *gemm,
                                               const int64_t *padded_size) {
    const samerun_convolution_shape *shape = phase->shape;
    const int64_t in = shape->inputs / shape->groups, all = samerun_volume(shape->taps),
                  area = samerun_volume(padded_size);
    if (!samerun_allocate_offset_table(&gemm->a_rows, gemm->m) ||
        !samerun_allocate_offset_table(&gemm->b_columns, gemm->n) ||
        !samerun_allocate_offset_table(&gemm->c_columns, gemm->n))
        return 0;
    for (int64_t i = 0; i < in; i++) gemm->a_rows.offset[i] = i * all;
    int64_t at = 0;
    for (int64_t image = 0; image < shape->images; image++)
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++)
                for (int64_t w = 0; w < phase->count[2]; w++, at++) {
                    gemm->b_columns.offset[at] =
                        image * shape->outputs * area + (d * padded_size[1] + h) * padded_size[2] + w;
                    gemm->c_columns.offset[at] = at;
                }
    samerun_fill_run_lengths(&gemm->a_rows);
    samerun_fill_run_lengths(&gemm->b_columns);
    samerun_fill_run_lengths(&gemm->c_columns);
    return samerun_build_strided_offsets(&gemm->a_batch, shape->groups, shape->outputs / shape->groups * in * all) &&
           samerun_build_strided_offsets(&gemm->b_batch, shape->groups, shape->outputs / shape->groups * area) &&
           samerun_build_strided_offsets(&gemm->c_batch, shape->groups, in * gemm->n);
}

static void write_phase_channels_range(void *stride_phase, int64_t channel_begin, int64_t channel_end) {
    stride_phase_t *phase = stride_phase;
    const samerun_convolution_shape *shape = phase->shape;
    const int64_t pixels = samerun_volume(phase->count), n = phase->count[2], step = shape->stride[2];
    int has_negative_zero = 0;
    for (int64_t i = channel_begin; i < channel_end; i++) {
        const int64_t image = i / shape->inputs, channel = i % shape->inputs;
        const char *line = phase->from;
        if (line) line += (size_t)((channel * shape->images + image) * pixels) * phase->element_size;
        for (int64_t d = 0; d < phase->count[0]; d++)
            for (int64_t h = 0; h < phase->count[1]; h++) {
                const int64_t z = phase->first[0] + d * shape->stride[0], y = phase->first[1] + h * shape->stride[1];
                const int64_t place = ((i * shape->in[0] + z) * shape->in[1] + y) * shape->in[2] + phase->first[2];
                has_negative_zero |=
                    samerun_store_line_has_negative_zero(line, phase->to + (size_t)place * phase->element_size, n, step,
                                                         phase->bias, channel, phase->element_size);
                if (line) line += (size_t)n * phase->element_size;
            }
    }
    if (has_negative_zero) __atomic_store_n(&phase->negative_zero, 1, __ATOMIC_RELAXED);
}

static samerun_status compute_phase_gradient_or_decline(stride_phase_t *phase, samerun_gemm gemm, int is_double,
                                                        const int64_t *pad_before, const int64_t *padded_size) {
    const samerun_convolution_shape *shape = phase->shape;
    const int64_t pixels = samerun_volume(phase->count);
    gemm.batches = shape->groups, gemm.m = shape->inputs / shape->groups, gemm.n = gemm.c_row = shape->images * pixels;
    phase->from = NULL;
    char *found = NULL;
    const size_t bytes = (size_t)(shape->inputs * gemm.n) * phase->element_size;
    if (samerun_volume(phase->taps)) {
        found = samerun_borrow_scratch(SCRATCH_PHASE, bytes);
        if (!found) return SAMERUN_NO_MEMORY;
        gemm.c = found;
        const int made = build_k_offset_tables(phase, &gemm, pad_before, padded_size) &&
                         build_row_and_column_offset_tables(phase, &gemm, padded_size);
        if (samerun_run_gemm_and_free_tables(&gemm, is_double, made)) {
            samerun_release_scratch(SCRATCH_PHASE, found);
            return SAMERUN_NO_MEMORY;
        }
        phase->from = found;
    }
    samerun_parallel_for(shape->images * shape->inputs, 1 + 16384 / (1 + pixels), write_phase_channels_range, phase);
    if (found) samerun_release_scratch(SCRATCH_PHASE, found);
    return phase->negative_zero ? SAMERUN_DECLINED : SAMERUN_DONE;
}

samerun_status samerun_try_strided_input_gradient(const samerun_convolution_shape *shape, int is_double,
                                                  const void *weight, const void *gradient, const void *bias_or_null,
                                                  void *result) {
    const int64_t weights = shape->outputs * (shape->inputs / shape->groups) * samerun_volume(shape->taps);
    if (samerun_volume(shape->stride) == 1 || !samerun_volume(shape->in) ||
        !samerun_all_finite(weight, weights, is_double))
        return SAMERUN_DECLINED;
    stride_phase_t phase = {.shape = shape, .element_size = is_double ? 8 : 4, .bias = bias_or_null, .to = result};
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
    char *copy = samerun_copy_padded_to_scratch_if_needed(gradient, shape->images * shape->outputs, shape->out, size,
                                                          one, pad_before, 1, phase.element_size, &copied);
    if (copied && !copy) status = SAMERUN_NO_MEMORY;
    const samerun_gemm gemm = {.a = weight, .b = copied ? copy : gradient, .b_slack = copied};
    if (status == SAMERUN_DONE) do {
            for (int dim = 0; dim < 3; dim++) select_taps_of_phase(&phase, dim);
            status = compute_phase_gradient_or_decline(&phase, gemm, is_double, pad_before, size);
        } while (status == SAMERUN_DONE && try_advance_to_next_phase(&phase));
    if (copied && copy) samerun_release_scratch(SCRATCH_IMAGE, copy);
    free(tables);
    return status;
}
