/* Convolutions of small images without the taps that lie beyond their border, whose zeros change no bit (phases.c says
 * when). Outputs that meet the same taps follow each other in the product; its results are put in their places at last.
 */
#include <stdlib.h>

#include "borders.h"
#include "multiply.h"
#include "pool.h"
#include "put_line.h"
#include "scratch.h"

enum { MAX_CLASSES = 16, WORTHWHILE = 16 /* one part of this many of the products */ };

/* Outputs that meet the same taps. An output that misses some of one dimension is taken to meet all of the later ones. */
typedef struct {
    int count;
    uint64_t met[MAX_CLASSES]; /* a bit for each tap */
    int64_t size[MAX_CLASSES];
    int64_t *number; /* of the class of each output */
} classes_t;

/* The taps of dimension `dim` that meet a value at output i, for the gradient of the input at input i. */
static uint64_t taps_met(const samerun_shape *s, int turned, int dim, int64_t i) {
    const int64_t first = turned ? i + s->padding[dim] : i * s->stride[dim] - s->padding[dim];
    const int64_t step = turned ? -s->dilation[dim] : s->dilation[dim], end = turned ? s->out[dim] : s->in[dim];
    uint64_t met = 0;
    for (int64_t t = 0; t < s->taps[dim]; t++) met |= (uint64_t)(first + t * step >= 0 && first + t * step < end) << t;
    return met;
}

static uint64_t all_taps(int64_t taps) { return ~0ULL >> (64 - taps); }

static uint64_t taps_along_dimension(const samerun_shape *s, int dim, uint64_t met) {
    uint64_t found = 0;
    for (int64_t tap = 0; tap < samerun_volume(s->taps); tap++) {
        const int64_t at[3] = {tap / s->taps[2] / s->taps[1], tap / s->taps[2] % s->taps[1], tap % s->taps[2]};
        found |= (met >> at[dim] & 1) << tap;
    }
    return found;
}

/* 0: too many. */
static int add_to_class(classes_t *classes, uint64_t met, int64_t output) {
    int c = 0;
    while (c < classes->count && classes->met[c] != met) c++;
    if (c == MAX_CLASSES) return 0;
    if (c == classes->count) classes->met[c] = met, classes->size[c] = 0, classes->count++;
    classes->size[c]++;
    classes->number[output] = c;
    return 1;
}

static int classify(const samerun_shape *s, int turned, const int64_t *size, classes_t *classes) {
    int64_t output = 0;
    classes->count = 0;
    for (int64_t d = 0; d < size[0]; d++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t w = 0; w < size[2]; w++, output++) {
                const int64_t at[3] = {d, h, w};
                int dim = 0;
                uint64_t met = 0;
                for (; dim < 3; dim++)
                    if ((met = taps_met(s, turned, dim, at[dim])) != all_taps(s->taps[dim])) break;
                met = dim < 3 ? taps_along_dimension(s, dim, met) : all_taps(samerun_volume(s->taps));
                if (!add_to_class(classes, met, output)) return 0;
            }
    return 1;
}

/* Vectors of so many columns, and for each panel as much as one more. */
static int64_t cost_in_vectors(int64_t columns, int64_t lanes) {
    const int64_t vectors = (columns + lanes - 1) / lanes;
    return vectors + (vectors + SAMERUN_VECTORS - 1) / SAMERUN_VECTORS;
}

static int worthwhile(const classes_t *classes, int64_t images, int64_t groups, int64_t pixels, int64_t taps,
                      int64_t lanes) {
    const int64_t before = cost_in_vectors(images * pixels, lanes) * taps;
    int64_t after = 0;
    for (int64_t g = 0; g < groups; g++)
        for (int c = 0; c < classes->count; c++)
            after += cost_in_vectors(classes->size[c] * (images * (g + 1) / groups - images * g / groups), lanes) *
                     __builtin_popcountll(classes->met[c]);
    return before - after >= before / WORTHWHILE;
}

/* The outputs in their new order: images in groups, so that threads that halve them have as much to do. */
static void fill_order(const classes_t *classes, int64_t images, int64_t groups, int64_t pixels, int64_t *order) {
    for (int64_t g = 0; g < groups; g++)
        for (int c = 0; c < classes->count; c++)
            for (int64_t image = images * g / groups; image < images * (g + 1) / groups; image++)
                for (int64_t output = 0; output < pixels; output++)
                    if (classes->number[output] == c) *order++ = image * pixels + output;
}

/* Runs end where the taps change, too. */
static void put_in_order(samerun_axis *axis, const int64_t *order, int64_t *spare, const uint64_t *met) {
    memcpy(spare, axis->offset, (size_t)axis->size * sizeof *spare);
    for (int64_t j = 0; j < axis->size; j++) axis->offset[j] = spare[order[j]];
    samerun_axis_runs(axis);
    for (int64_t j = axis->size - 2; j >= 0; j--)
        if (met[j] != met[j + 1]) axis->run[j] = 1;
        else if (axis->run[j] > 1) axis->run[j] = axis->run[j + 1] + 1;
}

/* Columns in the order given, their results side by side in borders->found. 0 without memory. */
static int reorder_columns(const classes_t *classes, int64_t pixels, const int64_t *order, size_t real,
                           samerun_multiplication *product, samerun_borders *borders) {
    int64_t *spare = malloc((size_t)product->n * sizeof *spare), *steps = NULL;
    samerun_axis results = {0};
    borders->met = malloc((size_t)product->n * sizeof *borders->met);
    const int made = spare && borders->met && samerun_axis_new(&results, product->n) &&
                     samerun_steps(&steps, product->batches, product->m * product->n);
    const size_t result_count = (size_t)(product->batches * product->m * product->n);
    if (made) borders->found = samerun_scratch(SCRATCH_PHASE, result_count * real);
    if (!borders->found) {
        samerun_axis_free(&results);
        free(borders->met);
        free(steps);
        free(spare);
        return 0;
    }
    for (int64_t j = 0; j < product->n; j++) {
        borders->met[j] = classes->met[classes->number[order[j] % pixels]];
        results.offset[j] = j;
    }
    samerun_axis_runs(&results);
    put_in_order(&product->b_columns, order, spare, borders->met);
    put_in_order(&product->c_columns, order, spare, borders->met);
    borders->to = product->c_columns, borders->bias = product->bias;
    borders->columns = product->n, borders->real = real;
    product->c_columns = results, product->bias = NULL;
    free(product->c_batch);
    product->c_batch = steps, product->c = borders->found, product->c_row = product->n, product->met = borders->met;
    free(spare);
    return 1;
}

samerun_status samerun_leave_out_borders(const samerun_shape *s, int turned, int is_double, const void *weight,
                                         samerun_multiplication *product, samerun_borders *borders) {
    const int64_t *size = turned ? s->in : s->out, pixels = samerun_volume(size), taps = samerun_volume(s->taps);
    const int64_t weights = s->outputs * (s->inputs / s->groups) * taps, threads = samerun_get_threads();
    const int64_t groups = threads < s->images ? threads : s->images;
    if (turned && samerun_volume(s->stride) != 1) return SAMERUN_DECLINED; /* between the values are zeros */
    if (taps < 2 || taps > 64 || product->m <= SAMERUN_FEW_ROWS || product->n == 0 || product->k == 0)
        return SAMERUN_DECLINED;
    if (samerun_part_met(s, turned) > 1 - 1. / WORTHWHILE) return SAMERUN_DECLINED;
    classes_t classes = {.number = malloc((size_t)pixels * sizeof *classes.number)};
    int64_t *order = malloc((size_t)product->n * sizeof *order);
    samerun_status status = classes.number && order ? SAMERUN_DONE : SAMERUN_NO_MEMORY;
    if (status == SAMERUN_DONE && (!classify(s, turned, size, &classes) ||
                                   !worthwhile(&classes, s->images, groups, pixels, taps, samerun_lanes(is_double)) ||
                                   !samerun_all_finite(weight, weights, is_double)))
        status = SAMERUN_DECLINED;
    if (status == SAMERUN_DONE) {
        fill_order(&classes, s->images, groups, pixels, order);
        product->taps = taps;
        if (!reorder_columns(&classes, pixels, order, is_double ? 8 : 4, product, borders)) status = SAMERUN_NO_MEMORY;
    }
    free(order);
    free(classes.number);
    return status;
}

typedef struct {
    const samerun_borders *borders;
    char *to;
    int64_t pixels;
    uint64_t all;
    int negative_zero;
} put_t;

static void put_channels_range(void *args, int64_t begin, int64_t end) {
    put_t *job = args;
    const samerun_borders *borders = job->borders;
    int any = 0;
    for (int64_t channel = begin; channel < end; channel++)
        for (int64_t j = 0, run; j < borders->columns; j += run) {
            run = borders->to.run[j];
            const char *from = borders->found + (size_t)(channel * borders->columns + j) * borders->real;
            char *to = job->to + (size_t)(channel * job->pixels + borders->to.offset[j]) * borders->real;
            const int odd = samerun_put_line(from, to, run, 1, borders->bias, channel, borders->real);
            any |= odd && borders->met[j] != job->all;
        }
    if (any) __atomic_store_n(&job->negative_zero, 1, __ATOMIC_RELAXED);
}

samerun_status samerun_put_back(const samerun_shape *s, int turned, void *result, samerun_borders *borders) {
    put_t job = {borders, result, samerun_volume(turned ? s->in : s->out), all_taps(samerun_volume(s->taps)), 0};
    samerun_parallel(turned ? s->inputs : s->outputs, 1 + 65536 / (1 + borders->columns), put_channels_range, &job);
    samerun_scratch_done(SCRATCH_PHASE, borders->found);
    samerun_axis_free(&borders->to);
    free(borders->met);
    return job.negative_zero ? SAMERUN_DECLINED : SAMERUN_DONE;
}
