/* Convolutions of small images without the taps that lie beyond their border, whose zeros change no bit
 * (strided_input_gradient.c says when). Outputs that meet the same taps follow each other in the product; its results
 * are put in their places at last.
 */
#include <stdlib.h>

#include "skip_padding.h"
#include "gemm.h"
#include "thread_pool.h"
#include "convolution_copies.h"
#include "scratch.h"

enum { MAX_CLASSES = 16, WORTHWHILE = 16 /* one part of this many of the products */ };

/* Outputs that meet the same taps. An output that misses some of one dimension is taken to meet all of the later
 * ones. */
typedef struct {
    int count;
    uint64_t tap_mask[MAX_CLASSES]; /* a bit for each tap */
    int64_t size[MAX_CLASSES];
    int64_t *number; /* of the class of each output */
} classes_t;

/* The taps of dimension `dim` that meet a value at output i, for the gradient of the input at input i. */
static uint64_t mask_of_taps_inside_image(const samerun_convolution_shape *shape, int is_input_gradient, int dim,
                                          int64_t position) {
    const int64_t first =
        is_input_gradient ? position + shape->padding[dim] : position * shape->stride[dim] - shape->padding[dim];
    const int64_t step = is_input_gradient ? -shape->dilation[dim] : shape->dilation[dim],
                  end = is_input_gradient ? shape->out[dim] : shape->in[dim];
    uint64_t tap_mask = 0;
    for (int64_t t = 0; t < shape->taps[dim]; t++)
        tap_mask |= (uint64_t)(first + t * step >= 0 && first + t * step < end) << t;
    return tap_mask;
}

static uint64_t mask_of_all_taps(int64_t taps) { return ~0ULL >> (64 - taps); }

static uint64_t expand_tap_mask_to_all_dims(const samerun_convolution_shape *shape, int dim, uint64_t tap_mask) {
    uint64_t results = 0;
    for (int64_t tap = 0; tap < samerun_volume(shape->taps); tap++) {
        const int64_t at[3] = {tap / shape->taps[2] / shape->taps[1], tap / shape->taps[2] % shape->taps[1],
                               tap % shape->taps[2]};
        results |= (tap_mask >> at[dim] & 1) << tap;
    }
    return results;
}

/* 0: too many. */
static int try_add_to_class(classes_t *classes, uint64_t tap_mask, int64_t output) {
    int c = 0;
    while (c < classes->count && classes->tap_mask[c] != tap_mask) c++;
    if (c == MAX_CLASSES) return 0;
    if (c == classes->count) classes->tap_mask[c] = tap_mask, classes->size[c] = 0, classes->count++;
    classes->size[c]++;
    classes->number[output] = c;
    return 1;
}

static int try_classify_outputs_by_taps(const samerun_convolution_shape *shape, int is_input_gradient,
                                        const int64_t *size, classes_t *classes) {
    int64_t output = 0;
    classes->count = 0;
    for (int64_t d = 0; d < size[0]; d++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t w = 0; w < size[2]; w++, output++) {
                const int64_t at[3] = {d, h, w};
                int dim = 0;
                uint64_t tap_mask = 0;
                for (; dim < 3; dim++)
                    if ((tap_mask = mask_of_taps_inside_image(shape, is_input_gradient, dim, at[dim])) !=
                        mask_of_all_taps(shape->taps[dim]))
                        break;
                tap_mask = dim < 3 ? expand_tap_mask_to_all_dims(shape, dim, tap_mask)
                                   : mask_of_all_taps(samerun_volume(shape->taps));
                if (!try_add_to_class(classes, tap_mask, output)) return 0;
            }
    return 1;
}

/* Vectors of so many columns, and for each panel as much as one more. */
static int64_t estimate_cost_in_vectors(int64_t columns, int64_t lanes) {
    const int64_t vectors = (columns + lanes - 1) / lanes;
    return vectors + (vectors + SAMERUN_VECTORS - 1) / SAMERUN_VECTORS;
}

static int skipping_taps_is_faster(const classes_t *classes, int64_t images, int64_t image_groups, int64_t pixels,
                                   int64_t taps, int64_t lanes) {
    const int64_t before = estimate_cost_in_vectors(images * pixels, lanes) * taps;
    int64_t after = 0;
    for (int64_t g = 0; g < image_groups; g++)
        for (int c = 0; c < classes->count; c++)
            after += estimate_cost_in_vectors(
                         classes->size[c] * (images * (g + 1) / image_groups - images * g / image_groups), lanes) *
                     __builtin_popcountll(classes->tap_mask[c]);
    return before - after >= before / WORTHWHILE;
}

/* The outputs in their new order: images in groups, so that threads that halve them have as much to do. */
static void order_outputs_by_class(const classes_t *classes, int64_t images, int64_t image_groups, int64_t pixels,
                                   int64_t *column_order) {
    for (int64_t g = 0; g < image_groups; g++)
        for (int c = 0; c < classes->count; c++)
            for (int64_t image = images * g / image_groups; image < images * (g + 1) / image_groups; image++)
                for (int64_t output = 0; output < pixels; output++)
                    if (classes->number[output] == c) *column_order++ = image * pixels + output;
}

/* Runs end where the taps change, too. */
static void permute_offset_table(samerun_offset_table *table, const int64_t *order, int64_t *scratch_offsets,
                                 const uint64_t *tap_mask) {
    memcpy(scratch_offsets, table->offset, (size_t)table->size * sizeof *scratch_offsets);
    for (int64_t j = 0; j < table->size; j++) table->offset[j] = scratch_offsets[order[j]];
    samerun_fill_run_lengths(table);
    for (int64_t j = table->size - 2; j >= 0; j--)
        if (tap_mask[j] != tap_mask[j + 1]) table->run[j] = 1;
        else if (table->run[j] > 1) table->run[j] = table->run[j + 1] + 1;
}

/* Columns in the order given, their results side by side in borders->found. 0 without memory. */
static int try_reorder_gemm_columns(const classes_t *classes, int64_t pixels, const int64_t *order, size_t element_size,
                                    samerun_gemm *gemm, samerun_reordered_columns *reordered) {
    int64_t *old_offsets = malloc((size_t)gemm->n * sizeof *old_offsets), *steps = NULL;
    samerun_offset_table results = {0};
    reordered->tap_mask = malloc((size_t)gemm->n * sizeof *reordered->tap_mask);
    const int made = old_offsets && reordered->tap_mask && samerun_allocate_offset_table(&results, gemm->n) &&
                     samerun_build_strided_offsets(&steps, gemm->batches, gemm->m * gemm->n);
    const size_t result_count = (size_t)(gemm->batches * gemm->m * gemm->n);
    if (made) reordered->results = samerun_borrow_scratch(SCRATCH_PHASE, result_count * element_size);
    if (!reordered->results) {
        samerun_free_offset_table_arrays(&results);
        free(reordered->tap_mask);
        free(steps);
        free(old_offsets);
        return 0;
    }
    for (int64_t j = 0; j < gemm->n; j++) {
        reordered->tap_mask[j] = classes->tap_mask[classes->number[order[j] % pixels]];
        results.offset[j] = j;
    }
    samerun_fill_run_lengths(&results);
    permute_offset_table(&gemm->b_columns, order, old_offsets, reordered->tap_mask);
    permute_offset_table(&gemm->c_columns, order, old_offsets, reordered->tap_mask);
    reordered->to = gemm->c_columns, reordered->bias = gemm->bias;
    reordered->columns = gemm->n, reordered->element_size = element_size;
    gemm->c_columns = results, gemm->bias = NULL;
    free(gemm->c_batch);
    gemm->c_batch = steps, gemm->c = reordered->results, gemm->c_row = gemm->n, gemm->tap_mask = reordered->tap_mask;
    free(old_offsets);
    return 1;
}

samerun_status samerun_try_skip_padding_taps(const samerun_convolution_shape *shape, int is_input_gradient,
                                             int is_double, const void *weight, samerun_gemm *gemm,
                                             samerun_reordered_columns *reordered) {
    const int64_t *size = is_input_gradient ? shape->in : shape->out, pixels = samerun_volume(size),
                  taps = samerun_volume(shape->taps);
    const int64_t weights = shape->outputs * (shape->inputs / shape->groups) * taps,
                  threads = samerun_get_pool_num_threads();
    const int64_t groups = threads < shape->images ? threads : shape->images;
    if (is_input_gradient && samerun_volume(shape->stride) != 1)
        return SAMERUN_DECLINED; /* between the values are zeros */
    if (taps < 2 || taps > 64 || gemm->m <= SAMERUN_FEW_ROWS || gemm->n == 0 || gemm->k == 0) return SAMERUN_DECLINED;
    if (samerun_estimate_taps_inside_fraction(shape, is_input_gradient) > 1 - 1. / WORTHWHILE) return SAMERUN_DECLINED;
    classes_t classes = {.number = malloc((size_t)pixels * sizeof *classes.number)};
    int64_t *order = malloc((size_t)gemm->n * sizeof *order);
    samerun_status status = classes.number && order ? SAMERUN_DONE : SAMERUN_NO_MEMORY;
    if (status == SAMERUN_DONE && (!try_classify_outputs_by_taps(shape, is_input_gradient, size, &classes) ||
                                   !skipping_taps_is_faster(&classes, shape->images, groups, pixels, taps,
                                                            samerun_gemm_vector_lanes(is_double)) ||
                                   !samerun_all_finite(weight, weights, is_double)))
        status = SAMERUN_DECLINED;
    if (status == SAMERUN_DONE) {
        order_outputs_by_class(&classes, shape->images, groups, pixels, order);
        gemm->taps = taps;
        if (!try_reorder_gemm_columns(&classes, pixels, order, is_double ? 8 : 4, gemm, reordered))
            status = SAMERUN_NO_MEMORY;
    }
    free(order);
    free(classes.number);
    return status;
}

typedef struct {
    const samerun_reordered_columns *reordered;
    char *to;
    int64_t pixels;
    uint64_t all;
    int negative_zero;
} scatter_job_t;

static void scatter_and_flag_negative_zeros_range(void *scatter_job, int64_t channel_begin, int64_t channel_end) {
    scatter_job_t *job = scatter_job;
    const samerun_reordered_columns *reordered = job->reordered;
    int any = 0;
    for (int64_t channel = channel_begin; channel < channel_end; channel++)
        for (int64_t j = 0, run; j < reordered->columns; j += run) {
            run = reordered->to.run[j];
            const char *from =
                reordered->results + (size_t)(channel * reordered->columns + j) * reordered->element_size;
            char *to = job->to + (size_t)(channel * job->pixels + reordered->to.offset[j]) * reordered->element_size;
            const int has_negative_zero = samerun_store_line_has_negative_zero(from, to, run, 1, reordered->bias,
                                                                               channel, reordered->element_size);
            any |= has_negative_zero && reordered->tap_mask[j] != job->all;
        }
    if (any) __atomic_store_n(&job->negative_zero, 1, __ATOMIC_RELAXED);
}

samerun_status samerun_try_scatter_and_free_columns(const samerun_convolution_shape *shape, int is_input_gradient,
                                                    void *result, samerun_reordered_columns *reordered) {
    scatter_job_t job = {reordered, result, samerun_volume(is_input_gradient ? shape->in : shape->out),
                         mask_of_all_taps(samerun_volume(shape->taps)), 0};
    samerun_parallel_for(is_input_gradient ? shape->inputs : shape->outputs, 1 + 65536 / (1 + reordered->columns),
                         scatter_and_flag_negative_zeros_range, &job);
    samerun_release_scratch(SCRATCH_PHASE, reordered->results);
    samerun_free_offset_table_arrays(&reordered->to);
    free(reordered->tap_mask);
    return job.negative_zero ? SAMERUN_DECLINED : SAMERUN_DONE;
}
