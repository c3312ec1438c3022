/* Convolutions of small images without the taps that lie beyond their border, whose zeros change no bit (strided_input_gradient.c says
 * when). Outputs that meet the same taps follow each other in the product; its results are put in their places at last.
 */
#include <stdlib.h>

#include "skip_padding.h"
#include "product.h"
#include "thread_pool.h"
#include "convolution_copies.h"
#include "scratch.h"

enum { MAX_CLASSES = 16, WORTHWHILE = 16 /* one part of this many of the products */ };

/* Outputs that meet the same taps. An output that misses some of one dimension is taken to meet all of the later ones. */
typedef struct {
    int count;
    uint64_t tap_mask[MAX_CLASSES]; /* a bit for each tap */
    int64_t size[MAX_CLASSES];
    int64_t *number; /* of the class of each output */
} classes_t;

/* The taps of dimension `dim` that meet a value at output i, for the gradient of the input at input i. */
static uint64_t taps_inside_image(const samerun_shape *shape, int backward, int dim, int64_t i) {
    const int64_t first = backward ? i + shape->padding[dim] : i * shape->stride[dim] - shape->padding[dim];
    const int64_t step = backward ? -shape->dilation[dim] : shape->dilation[dim],
                  end = backward ? shape->out[dim] : shape->in[dim];
    uint64_t tap_mask = 0;
    for (int64_t t = 0; t < shape->taps[dim]; t++)
        tap_mask |= (uint64_t)(first + t * step >= 0 && first + t * step < end) << t;
    return tap_mask;
}

static uint64_t mask_of_all_taps(int64_t taps) { return ~0ULL >> (64 - taps); }

static uint64_t expand_tap_mask(const samerun_shape *shape, int dim, uint64_t tap_mask) {
    uint64_t results = 0;
    for (int64_t tap = 0; tap < samerun_volume(shape->taps); tap++) {
        const int64_t at[3] = {tap / shape->taps[2] / shape->taps[1], tap / shape->taps[2] % shape->taps[1],
                               tap % shape->taps[2]};
        results |= (tap_mask >> at[dim] & 1) << tap;
    }
    return results;
}

/* 0: too many. */
static int add_to_class(classes_t *classes, uint64_t tap_mask, int64_t output) {
    int c = 0;
    while (c < classes->count && classes->tap_mask[c] != tap_mask) c++;
    if (c == MAX_CLASSES) return 0;
    if (c == classes->count) classes->tap_mask[c] = tap_mask, classes->size[c] = 0, classes->count++;
    classes->size[c]++;
    classes->number[output] = c;
    return 1;
}

static int classify_outputs_by_taps(const samerun_shape *shape, int backward, const int64_t *size, classes_t *classes) {
    int64_t output = 0;
    classes->count = 0;
    for (int64_t d = 0; d < size[0]; d++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t w = 0; w < size[2]; w++, output++) {
                const int64_t at[3] = {d, h, w};
                int dim = 0;
                uint64_t tap_mask = 0;
                for (; dim < 3; dim++)
                    if ((tap_mask = taps_inside_image(shape, backward, dim, at[dim])) !=
                        mask_of_all_taps(shape->taps[dim]))
                        break;
                tap_mask =
                    dim < 3 ? expand_tap_mask(shape, dim, tap_mask) : mask_of_all_taps(samerun_volume(shape->taps));
                if (!add_to_class(classes, tap_mask, output)) return 0;
            }
    return 1;
}

/* Vectors of so many columns, and for each panel as much as one more. */
static int64_t estimate_vector_cost(int64_t columns, int64_t lanes) {
    const int64_t vectors = (columns + lanes - 1) / lanes;
    return vectors + (vectors + SAMERUN_VECTORS - 1) / SAMERUN_VECTORS;
}

static int skipping_pays(const classes_t *classes, int64_t images, int64_t groups, int64_t pixels, int64_t taps,
                         int64_t lanes) {
    const int64_t before = estimate_vector_cost(images * pixels, lanes) * taps;
    int64_t after = 0;
    for (int64_t g = 0; g < groups; g++)
        for (int c = 0; c < classes->count; c++)
            after += estimate_vector_cost(classes->size[c] * (images * (g + 1) / groups - images * g / groups), lanes) *
                     __builtin_popcountll(classes->tap_mask[c]);
    return before - after >= before / WORTHWHILE;
}

/* The outputs in their new order: images in groups, so that threads that halve them have as much to do. */
static void order_outputs_by_class(const classes_t *classes, int64_t images, int64_t groups, int64_t pixels,
                                   int64_t *order) {
    for (int64_t g = 0; g < groups; g++)
        for (int c = 0; c < classes->count; c++)
            for (int64_t image = images * g / groups; image < images * (g + 1) / groups; image++)
                for (int64_t output = 0; output < pixels; output++)
                    if (classes->number[output] == c) *order++ = image * pixels + output;
}

/* Runs end where the taps change, too. */
static void permute_offset_table(samerun_offset_table *axis, const int64_t *order, int64_t *old_offsets,
                                 const uint64_t *tap_mask) {
    memcpy(old_offsets, axis->offset, (size_t)axis->size * sizeof *old_offsets);
    for (int64_t j = 0; j < axis->size; j++) axis->offset[j] = old_offsets[order[j]];
    samerun_find_runs(axis);
    for (int64_t j = axis->size - 2; j >= 0; j--)
        if (tap_mask[j] != tap_mask[j + 1]) axis->run[j] = 1;
        else if (axis->run[j] > 1) axis->run[j] = axis->run[j + 1] + 1;
}

/* Columns in the order given, their results side by side in borders->found. 0 without memory. */
static int reorder_product_columns(const classes_t *classes, int64_t pixels, const int64_t *order, size_t real,
                                   samerun_matrix_product *product, samerun_reordered_columns *borders) {
    int64_t *old_offsets = malloc((size_t)product->n * sizeof *old_offsets), *steps = NULL;
    samerun_offset_table results = {0};
    borders->tap_mask = malloc((size_t)product->n * sizeof *borders->tap_mask);
    const int made = old_offsets && borders->tap_mask && samerun_allocate_offset_table(&results, product->n) &&
                     samerun_allocate_strided_offsets(&steps, product->batches, product->m * product->n);
    const size_t result_count = (size_t)(product->batches * product->m * product->n);
    if (made) borders->results = samerun_borrow_scratch(SCRATCH_PHASE, result_count * real);
    if (!borders->results) {
        samerun_free_offset_table(&results);
        free(borders->tap_mask);
        free(steps);
        free(old_offsets);
        return 0;
    }
    for (int64_t j = 0; j < product->n; j++) {
        borders->tap_mask[j] = classes->tap_mask[classes->number[order[j] % pixels]];
        results.offset[j] = j;
    }
    samerun_find_runs(&results);
    permute_offset_table(&product->b_columns, order, old_offsets, borders->tap_mask);
    permute_offset_table(&product->c_columns, order, old_offsets, borders->tap_mask);
    borders->to = product->c_columns, borders->bias = product->bias;
    borders->columns = product->n, borders->real = real;
    product->c_columns = results, product->bias = NULL;
    free(product->c_batch);
    product->c_batch = steps, product->c = borders->results, product->c_row = product->n,
    product->tap_mask = borders->tap_mask;
    free(old_offsets);
    return 1;
}

samerun_status samerun_skip_padding_taps(const samerun_shape *shape, int backward, int is_double, const void *weight,
                                         samerun_matrix_product *product, samerun_reordered_columns *borders) {
    const int64_t *size = backward ? shape->in : shape->out, pixels = samerun_volume(size),
                  taps = samerun_volume(shape->taps);
    const int64_t weights = shape->outputs * (shape->inputs / shape->groups) * taps, threads = samerun_get_threads();
    const int64_t groups = threads < shape->images ? threads : shape->images;
    if (backward && samerun_volume(shape->stride) != 1) return SAMERUN_DECLINED; /* between the values are zeros */
    if (taps < 2 || taps > 64 || product->m <= SAMERUN_FEW_ROWS || product->n == 0 || product->k == 0)
        return SAMERUN_DECLINED;
    if (samerun_fraction_of_taps_inside(shape, backward) > 1 - 1. / WORTHWHILE) return SAMERUN_DECLINED;
    classes_t classes = {.number = malloc((size_t)pixels * sizeof *classes.number)};
    int64_t *order = malloc((size_t)product->n * sizeof *order);
    samerun_status status = classes.number && order ? SAMERUN_DONE : SAMERUN_NO_MEMORY;
    if (status == SAMERUN_DONE &&
        (!classify_outputs_by_taps(shape, backward, size, &classes) ||
         !skipping_pays(&classes, shape->images, groups, pixels, taps, samerun_vector_lanes(is_double)) ||
         !samerun_all_finite(weight, weights, is_double)))
        status = SAMERUN_DECLINED;
    if (status == SAMERUN_DONE) {
        order_outputs_by_class(&classes, shape->images, groups, pixels, order);
        product->taps = taps;
        if (!reorder_product_columns(&classes, pixels, order, is_double ? 8 : 4, product, borders))
            status = SAMERUN_NO_MEMORY;
    }
    free(order);
    free(classes.number);
    return status;
}

typedef struct {
    const samerun_reordered_columns *borders;
    char *to;
    int64_t pixels;
    uint64_t all;
    int negative_zero;
} scatter_job_t;

static void scatter_channels_range(void *args, int64_t begin, int64_t end) {
    scatter_job_t *job = args;
    const samerun_reordered_columns *borders = job->borders;
    int any = 0;
    for (int64_t channel = begin; channel < end; channel++)
        for (int64_t j = 0, run; j < borders->columns; j += run) {
            run = borders->to.run[j];
            const char *from = borders->results + (size_t)(channel * borders->columns + j) * borders->real;
            char *to = job->to + (size_t)(channel * job->pixels + borders->to.offset[j]) * borders->real;
            const int odd = samerun_write_line_plus_bias(from, to, run, 1, borders->bias, channel, borders->real);
            any |= odd && borders->tap_mask[j] != job->all;
        }
    if (any) __atomic_store_n(&job->negative_zero, 1, __ATOMIC_RELAXED);
}

samerun_status samerun_scatter_reordered_columns(const samerun_shape *shape, int backward, void *result,
                                                 samerun_reordered_columns *borders) {
    scatter_job_t job = {borders, result, samerun_volume(backward ? shape->in : shape->out),
                         mask_of_all_taps(samerun_volume(shape->taps)), 0};
    samerun_parallel_for(backward ? shape->inputs : shape->outputs, 1 + 65536 / (1 + borders->columns),
                         scatter_channels_range, &job);
    samerun_release_scratch(SCRATCH_PHASE, borders->results);
    samerun_free_offset_table(&borders->to);
    free(borders->tap_mask);
    return job.negative_zero ? SAMERUN_DECLINED : SAMERUN_DONE;
}
