/* Convolutions in one to three dimensions, forward and both gradients, as products of matrices.
 *
 * The image is copied once into one with its padding (and, for a gradient of the input that phases.c does not take, with
 * zeros between the values of a strided gradient). In that copy every tap of every output lies at a fixed distance, so
 * the unfolded image is two tables of offsets and is never written out. Where outputs are a stride apart, what one tap
 * meets of a line lies side by side in the copy. Where there is a faster way to the same bits (direct.h, phases.c), it
 * is taken.
 */
#include <stdlib.h>
#include <string.h>

#include "borders.h"
#include "direct.h"
#include "phases.h"
#include "pool.h"
#include "scratch.h"
#include "spread.h"

enum { FORWARD, GRADIENT_OF_INPUT, GRADIENT_OF_WEIGHT };
enum {
    CACHED_IMAGE_BYTES = 512 << 10, /* bytes of images that stay in the second cache beside packed rows */
    ENOUGH_COLUMNS = 512,       /* that are enough for a product of their own */
    IMAGES_PER_THREAD = 8             /* images for each thread */
};

/* samerun_axis_runs, where every line of n places is the first one moved: in a quarter of the time. */
static void fill_runs_of_lines(samerun_axis *axis, int64_t n) {
    samerun_axis line = {axis->offset, axis->run, n};
    const int32_t *const first = axis->run;
    int64_t last = 0; /* where the last run of a line begins */
    if (axis->size == 0) return;
    samerun_axis_runs(&line);
    while (last + first[last] < n) last += first[last];
    for (int64_t at = axis->size - n; at >= 0; at -= n) {
        const int joins = at + n < axis->size && axis->offset[at + n] == axis->offset[at + n - 1] + 1;
        const int32_t more = joins && n < INT32_MAX - axis->run[at + n] ? axis->run[at + n] : 0;
        for (int64_t w = 0; w < last; w++) axis->run[at + w] = first[w];
        for (int64_t w = last; w < n; w++) axis->run[at + w] = first[w] + more;
    }
}

/* outer * volume of `inner` entries: outer * outer_stride + each position of `inner` times its steps, in an image of
 * `size` whose lines are taken `apart` (samerun_place). */
static int fill_grid_apart(samerun_axis *axis, int64_t outer, int64_t outer_stride, const int64_t *inner,
                           const int64_t *step, const int64_t *size, int64_t start, int64_t apart) {
    if (!samerun_axis_new(axis, outer * samerun_volume(inner))) return 0;
    const int64_t n = inner[2], *const line = axis->offset; /* the first one, whose places are found by divisions */
    int64_t *to = axis->offset;
    for (int64_t w = 0; axis->size && w < n; w++) to[w] = start + samerun_place(w * step[2], size[2], apart);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t d = 0; d < inner[0]; d++)
            for (int64_t h = 0; h < inner[1]; h++, to += n) {
                const int64_t base = o * outer_stride + ((d * step[0]) * size[1] + h * step[1]) * size[2];
                for (int64_t w = 0; w < n; w++) to[w] = line[w] + base; /* 0 for the first one */
            }
    fill_runs_of_lines(axis, n);
    return 1;
}

static int fill_grid(samerun_axis *axis, int64_t outer, int64_t outer_stride, const int64_t *inner, const int64_t *step,
                     const int64_t *size, int64_t start) {
    return fill_grid_apart(axis, outer, outer_stride, inner, step, size, start, 1);
}

static const int64_t one[3] = {1, 1, 1};

static int describe_forward(const samerun_shape *s, samerun_multiplication *product, const int64_t *size,
                            int64_t apart) {
    int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, taps = samerun_volume(s->taps);
    int64_t pixels = samerun_volume(s->out), area = samerun_volume(size);
    product->m = out;
    product->k = in * taps;
    product->n = s->images * pixels;
    product->c_row = pixels;
    return samerun_steps(&product->a_batch, s->groups, out * in * taps) &&
           samerun_steps(&product->b_batch, s->groups, in * area) &&
           samerun_steps(&product->c_batch, s->groups, out * pixels) &&
           fill_grid(&product->a_rows, out, in * taps, one, one, one, 0) &&
           fill_grid(&product->a_k, in * taps, 1, one, one, one, 0) &&
           fill_grid_apart(&product->b_k, in, area, s->taps, s->dilation, size, 0, apart) &&
           fill_grid_apart(&product->b_columns, s->images, s->inputs * area, s->out, s->stride, size, 0, apart) &&
           fill_grid(&product->c_columns, s->images, s->outputs * pixels, s->out, one, s->out, 0);
}

/* `reordered`: the weight is samerun_weight_by_inputs. */
static int describe_gradient_of_input(const samerun_shape *s, samerun_multiplication *product, const int64_t *size,
                                      const int64_t *start, int reordered) {
    int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, taps = samerun_volume(s->taps);
    int64_t pixels = samerun_volume(s->in), area = samerun_volume(size), back[3];
    for (int i = 0; i < 3; i++) back[i] = -s->dilation[i];
    product->m = in;
    product->k = out * taps;
    product->n = s->images * pixels;
    product->c_row = pixels;
    return samerun_steps(&product->a_batch, s->groups, out * in * taps) &&
           samerun_steps(&product->b_batch, s->groups, out * area) &&
           samerun_steps(&product->c_batch, s->groups, in * pixels) &&
           fill_grid(&product->a_rows, in, reordered ? out * taps : taps, one, one, one, 0) &&
           fill_grid(&product->a_k, out, reordered ? taps : in * taps, s->taps, one, s->taps, 0) &&
           fill_grid(&product->b_k, out, area, s->taps, back, size, 0) &&
           fill_grid(&product->b_columns, s->images, s->outputs * area, s->in, one, size,
                     (start[0] * size[1] + start[1]) * size[2] + start[2]) &&
           fill_grid(&product->c_columns, s->images, s->inputs * pixels, s->in, one, s->in, 0);
}

static int describe_gradient_of_weight(const samerun_shape *s, samerun_multiplication *product, const int64_t *size,
                                       int64_t apart) {
    int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, taps = samerun_volume(s->taps);
    int64_t pixels = samerun_volume(s->out), area = samerun_volume(size);
    product->m = out;
    product->k = s->images * pixels;
    product->n = in * taps;
    product->c_row = in * taps;
    return samerun_steps(&product->a_batch, s->groups, out * pixels) &&
           samerun_steps(&product->b_batch, s->groups, in * area) &&
           samerun_steps(&product->c_batch, s->groups, out * in * taps) &&
           fill_grid(&product->a_rows, out, pixels, one, one, one, 0) &&
           fill_grid(&product->a_k, s->images, s->outputs * pixels, s->out, one, s->out, 0) &&
           fill_grid_apart(&product->b_k, s->images, s->inputs * area, s->out, s->stride, size, 0, apart) &&
           fill_grid_apart(&product->b_columns, in, area, s->taps, s->dilation, size, 0, apart) &&
           fill_grid(&product->c_columns, in * taps, 1, one, one, one, 0);
}

typedef struct {
    int direction, is_double, leave_out_taps; /* where those beyond the border change no bit */
    const samerun_shape *s;
    const char *image, *weight, *by_inputs, *gradient, *bias; /* by_inputs: NULL, or the weight in that order */
    char *result;
    int64_t parts; /* of the images */
    samerun_status status;
} convolution_t;

/* Of `s->images` images. Declines where the bits might not be those of the product with all taps. */
static samerun_status convolve(const convolution_t *job, const samerun_shape *s, const char *image,
                               const char *gradient, char *result) {
    const int direction = job->direction, is_double = job->is_double, turned = direction == GRADIENT_OF_INPUT;
    const size_t real = is_double ? 8 : 4;
    int64_t size[3], start[3], left[3];
    samerun_multiplication product = {.batches = s->groups, .c = result, .bias = job->bias};
    samerun_borders borders = {0};
    int own;
    for (int i = 0; i < 3; i++) {
        int64_t reach = (s->taps[i] - 1) * s->dilation[i];
        /* Gradient of the input i: tap t of output o where o * stride == i + padding - t * dilation. */
        left[i] = turned ? (reach > s->padding[i] ? reach - s->padding[i] : 0) : s->padding[i];
        start[i] = s->padding[i] + left[i];
        size[i] = turned ? s->in[i] - 1 + start[i] + 1 : (s->out[i] - 1) * s->stride[i] + reach + 1;
        if (!turned && size[i] < s->in[i] + left[i]) size[i] = s->in[i] + left[i];
    }
    const int direct = direction == GRADIENT_OF_WEIGHT && !is_double && samerun_direct_gradient_suits(s);
    const int64_t apart =
        !turned && !direct && s->taps[2] > 1 ? s->stride[2] : 1; /* one tap needs a part of the image only */
    size[2] = (size[2] + apart - 1) / apart * apart;
    char *copy = turned ? samerun_spread(gradient, s->images * s->outputs, s->out, size, s->stride, left, 1, real, &own)
                        : samerun_spread(image, s->images * s->inputs, s->in, size, one, left, apart, real, &own);
    if (own && copy == NULL) return SAMERUN_NO_MEMORY;
    const void *wide = own ? copy : turned ? gradient : image;
    if (direct) {
        const samerun_status status = samerun_direct_gradient(s, size, wide, (const float *)gradient, (float *)result);
        if (own) samerun_scratch_done(SCRATCH_IMAGE, copy);
        return status;
    }
    product.b = wide;
    product.b_slack = own;
    product.a = job->by_inputs ? job->by_inputs : direction == GRADIENT_OF_WEIGHT ? gradient : job->weight;
    product.bias_batch = turned ? s->inputs / s->groups : s->outputs / s->groups;
    product.bias_row = 1;
    const int made = direction == FORWARD ? describe_forward(s, &product, size, apart)
                     : direction == GRADIENT_OF_INPUT
                         ? describe_gradient_of_input(s, &product, size, start, job->by_inputs != NULL)
                         : describe_gradient_of_weight(s, &product, size, apart);
    const samerun_status left_out =
        made && job->leave_out_taps ? samerun_leave_out_borders(s, turned, is_double, job->weight, &product, &borders)
                                    : SAMERUN_DECLINED;
    samerun_status status = samerun_multiply_and_free(&product, is_double, made && left_out != SAMERUN_NO_MEMORY);
    if (left_out == SAMERUN_DONE) {
        const samerun_status put = samerun_put_back(s, turned, result, &borders);
        if (status == SAMERUN_DONE) status = put;
    }
    if (own) samerun_scratch_done(SCRATCH_IMAGE, copy);
    return status;
}

static void images_range(void *args, int64_t begin, int64_t end) {
    convolution_t *job = args;
    const int64_t real = job->is_double ? 8 : 4, in = job->s->inputs * samerun_volume(job->s->in) * real;
    const int64_t out = job->s->outputs * samerun_volume(job->s->out) * real;
    for (int64_t part = begin; part < end; part++) {
        const int64_t first = job->s->images * part / job->parts, last = job->s->images * (part + 1) / job->parts;
        const int turned = job->direction == GRADIENT_OF_INPUT;
        samerun_shape s = *job->s;
        s.images = last - first;
        const char *image = turned ? NULL : job->image + first * in,
                   *gradient = turned ? job->gradient + first * out : NULL;
        const samerun_status status = convolve(job, &s, image, gradient, job->result + first * (turned ? in : out));
        if (status != SAMERUN_DONE) __atomic_store_n(&job->status, status, __ATOMIC_RELAXED);
    }
}

/* Into how many parts the images are cut, each of which one thread takes from start to end, so that what it has spread is
 * still at hand when it is multiplied. 1 where the packed rows would be many beside that, columns few, or threads not be used
 * evenly. */
static int64_t choose_image_parts(const convolution_t *job) {
    const samerun_shape *s = job->s;
    const int turned = job->direction == GRADIENT_OF_INPUT;
    const int64_t values = turned ? s->outputs * samerun_volume(s->out) : s->inputs * samerun_volume(s->in);
    const int64_t bytes = values * (job->is_double ? 8 : 4);
    const int64_t threads = samerun_get_threads();
    const int64_t parts = bytes * s->images / CACHED_IMAGE_BYTES / threads * threads + threads;
    if (job->direction == GRADIENT_OF_WEIGHT || samerun_volume(s->taps) == 1) return 1;
    if ((turned ? s->inputs : s->outputs) / s->groups > SAMERUN_FEW_ROWS) return 1;
    if (bytes > CACHED_IMAGE_BYTES || bytes * s->images <= CACHED_IMAGE_BYTES * threads) return 1;
    if (s->images % threads != 0 && s->images < IMAGES_PER_THREAD * threads) return 1;
    if (s->images * samerun_volume(turned ? s->in : s->out) < ENOUGH_COLUMNS * parts) return 1;
    return parts < s->images ? parts : s->images;
}

static samerun_status convolve_all(convolution_t *job) {
    /* With one tap, packing reads the weight as fast as it lies. */
    const int reordered = job->direction == GRADIENT_OF_INPUT && samerun_volume(job->s->taps) > 1;
    void *by_inputs = reordered ? samerun_weight_by_inputs(job->weight, job->s, job->is_double ? 8 : 4) : NULL;
    if (reordered && !by_inputs) return SAMERUN_NO_MEMORY;
    job->by_inputs = by_inputs, job->status = SAMERUN_DONE, job->parts = choose_image_parts(job);
    if (job->parts > 1) samerun_parallel(job->parts, 1, images_range, job);
    else job->status = convolve(job, job->s, job->image, job->gradient, job->result);
    if (by_inputs) samerun_scratch_done(SCRATCH_WEIGHT, by_inputs);
    return job->status;
}

/* numbers: images, groups, input and output channels, then three each of input size, output size, taps, stride,
 * padding, dilation. Tensors are contiguous: `image` [n, c, d, h, w] (the input; its gradient's source is
 * `gradient` [n, c', d', h', w']), `weight` [c', c / groups, taps].
 *   direction 0: result [n, c', d', h', w'] from image, weight, bias (or NULL)
 *   direction 1: result [n, c, d, h, w] from gradient, weight, bias (or NULL; transposed convolutions have one)
 *   direction 2: result [c', c / groups, taps] from gradient, image
 * Done, or no memory. */
samerun_status samerun_convolution(int direction, int is_double, const int64_t *numbers, const void *image,
                                   const void *weight, const void *gradient, const void *bias, void *result) {
    samerun_shape s;
    memcpy(&s, numbers, sizeof s);
    if (direction != GRADIENT_OF_WEIGHT && !is_double) {
        const int turned = direction == GRADIENT_OF_INPUT;
        const samerun_status status =
            samerun_direct_convolution(&s, turned, turned ? gradient : image, weight, bias, result);
        if (status != SAMERUN_DECLINED) return status;
    }
    if (direction == GRADIENT_OF_INPUT) {
        const samerun_status status = samerun_gradient_by_phases(&s, is_double, weight, gradient, bias, result);
        if (status != SAMERUN_DECLINED) return status;
    }
    convolution_t job = {
        direction, is_double,   direction != GRADIENT_OF_WEIGHT, &s, image, weight, NULL, gradient, bias, result,
        1,         SAMERUN_DONE};
    const samerun_status status = convolve_all(&job);
    job.leave_out_taps = 0;
    return status == SAMERUN_DECLINED ? convolve_all(&job) : status;
}
