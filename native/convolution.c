/* Convolutions in one to three dimensions, forward and both gradients, as products of matrices.
 *
 * The image is copied once into one with its padding (and, for a gradient of the input that strided_input_gradient.c does not take, with
 * zeros between the values of a strided gradient). In that copy every tap of every output lies at a fixed distance, so
 * the unfolded image is two tables of offsets and is never written out. Where outputs are a stride apart, what one tap
 * meets of a line lies side by side in the copy. Where there is a faster way to the same bits (direct_convolution.h, strided_input_gradient.c), it
 * is taken.
 */
#include <stdlib.h>
#include <string.h>

#include "skip_padding.h"
#include "direct_convolution.h"
#include "strided_input_gradient.h"
#include "thread_pool.h"
#include "scratch.h"
#include "convolution_copies.h"

enum { FORWARD, GRADIENT_OF_INPUT, GRADIENT_OF_WEIGHT };
enum {
    CACHED_IMAGE_BYTES = 512 << 10, /* bytes of images that stay in the second cache beside packed rows */
    ENOUGH_COLUMNS = 512,       /* that are enough for a product of their own */
    IMAGES_PER_THREAD = 8             /* images for each thread */
};

/* samerun_find_runs, where every line of n places is the first one moved: in a quarter of the time. */
static void find_runs_of_repeated_lines(samerun_offset_table *table, int64_t n) {
    samerun_offset_table line = {table->offset, table->run, n};
    const int32_t *const first = table->run;
    int64_t last = 0; /* where the last run of a line begins */
    if (table->size == 0) return;
    samerun_find_runs(&line);
    while (last + first[last] < n) last += first[last];
    for (int64_t at = table->size - n; at >= 0; at -= n) {
        const int joins = at + n < table->size && table->offset[at + n] == table->offset[at + n - 1] + 1;
        const int32_t more = joins && n < INT32_MAX - table->run[at + n] ? table->run[at + n] : 0;
        for (int64_t w = 0; w < last; w++) table->run[at + w] = first[w];
        for (int64_t w = last; w < n; w++) table->run[at + w] = first[w] + more;
    }
}

/* outer * volume of `inner` entries: outer * outer_stride + each position of `inner` times its steps, in an image of
 * `size` whose lines are kept in `phases` phases (samerun_polyphase_index). */
static int fill_polyphase_grid_offsets(samerun_offset_table *table, int64_t outer, int64_t outer_stride,
                                       const int64_t *inner, const int64_t *step, const int64_t *size, int64_t start,
                                       int64_t phases) {
    if (!samerun_allocate_offset_table(table, outer * samerun_volume(inner))) return 0;
    const int64_t n = inner[2], *const line = table->offset; /* the first one, whose places are found by divisions */
    int64_t *to = table->offset;
    for (int64_t w = 0; table->size && w < n; w++)
        to[w] = start + samerun_polyphase_index(w * step[2], size[2], phases);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t d = 0; d < inner[0]; d++)
            for (int64_t h = 0; h < inner[1]; h++, to += n) {
                const int64_t base = o * outer_stride + ((d * step[0]) * size[1] + h * step[1]) * size[2];
                for (int64_t w = 0; w < n; w++) to[w] = line[w] + base; /* 0 for the first one */
            }
    find_runs_of_repeated_lines(table, n);
    return 1;
}

static int fill_grid_offsets(samerun_offset_table *table, int64_t outer, int64_t outer_stride, const int64_t *inner,
                             const int64_t *step, const int64_t *size, int64_t start) {
    return fill_polyphase_grid_offsets(table, outer, outer_stride, inner, step, size, start, 1);
}

static const int64_t one[3] = {1, 1, 1};

static int describe_forward_product(const samerun_shape *shape, samerun_matrix_product *product, const int64_t *size,
                                    int64_t phases) {
    int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
            taps = samerun_volume(shape->taps);
    int64_t pixels = samerun_volume(shape->out), area = samerun_volume(size);
    product->m = out;
    product->k = in * taps;
    product->n = shape->images * pixels;
    product->c_row = pixels;
    return samerun_allocate_strided_offsets(&product->a_batch, shape->groups, out * in * taps) &&
           samerun_allocate_strided_offsets(&product->b_batch, shape->groups, in * area) &&
           samerun_allocate_strided_offsets(&product->c_batch, shape->groups, out * pixels) &&
           fill_grid_offsets(&product->a_rows, out, in * taps, one, one, one, 0) &&
           fill_grid_offsets(&product->a_k, in * taps, 1, one, one, one, 0) &&
           fill_polyphase_grid_offsets(&product->b_k, in, area, shape->taps, shape->dilation, size, 0, phases) &&
           fill_polyphase_grid_offsets(&product->b_columns, shape->images, shape->inputs * area, shape->out,
                                       shape->stride, size, 0, phases) &&
           fill_grid_offsets(&product->c_columns, shape->images, shape->outputs * pixels, shape->out, one, shape->out,
                             0);
}

/* `weight_is_transposed`: the weight is samerun_copy_weight_transposed. */
static int describe_input_gradient_product(const samerun_shape *shape, samerun_matrix_product *product,
                                           const int64_t *size, const int64_t *start, int weight_is_transposed) {
    int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
            taps = samerun_volume(shape->taps);
    int64_t pixels = samerun_volume(shape->in), area = samerun_volume(size), back[3];
    for (int i = 0; i < 3; i++) back[i] = -shape->dilation[i];
    product->m = in;
    product->k = out * taps;
    product->n = shape->images * pixels;
    product->c_row = pixels;
    return samerun_allocate_strided_offsets(&product->a_batch, shape->groups, out * in * taps) &&
           samerun_allocate_strided_offsets(&product->b_batch, shape->groups, out * area) &&
           samerun_allocate_strided_offsets(&product->c_batch, shape->groups, in * pixels) &&
           fill_grid_offsets(&product->a_rows, in, weight_is_transposed ? out * taps : taps, one, one, one, 0) &&
           fill_grid_offsets(&product->a_k, out, weight_is_transposed ? taps : in * taps, shape->taps, one, shape->taps,
                             0) &&
           fill_grid_offsets(&product->b_k, out, area, shape->taps, back, size, 0) &&
           fill_grid_offsets(&product->b_columns, shape->images, shape->outputs * area, shape->in, one, size,
                             (start[0] * size[1] + start[1]) * size[2] + start[2]) &&
           fill_grid_offsets(&product->c_columns, shape->images, shape->inputs * pixels, shape->in, one, shape->in, 0);
}

static int describe_weight_gradient_product(const samerun_shape *shape, samerun_matrix_product *product,
                                            const int64_t *size, int64_t phases) {
    int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
            taps = samerun_volume(shape->taps);
    int64_t pixels = samerun_volume(shape->out), area = samerun_volume(size);
    product->m = out;
    product->k = shape->images * pixels;
    product->n = in * taps;
    product->c_row = in * taps;
    return samerun_allocate_strided_offsets(&product->a_batch, shape->groups, out * pixels) &&
           samerun_allocate_strided_offsets(&product->b_batch, shape->groups, in * area) &&
           samerun_allocate_strided_offsets(&product->c_batch, shape->groups, out * in * taps) &&
           fill_grid_offsets(&product->a_rows, out, pixels, one, one, one, 0) &&
           fill_grid_offsets(&product->a_k, shape->images, shape->outputs * pixels, shape->out, one, shape->out, 0) &&
           fill_polyphase_grid_offsets(&product->b_k, shape->images, shape->inputs * area, shape->out, shape->stride,
                                       size, 0, phases) &&
           fill_polyphase_grid_offsets(&product->b_columns, in, area, shape->taps, shape->dilation, size, 0, phases) &&
           fill_grid_offsets(&product->c_columns, in * taps, 1, one, one, one, 0);
}

typedef struct {
    int direction, is_double, leave_out_taps; /* where those beyond the border change no bit */
    const samerun_shape *shape;
    const char *image, *weight, *transposed_weight, *gradient,
        *bias; /* transposed_weight: NULL, or the weight in that order */
    char *result;
    int64_t parts; /* of the images */
    samerun_status status;
} convolution_job_t;

/* Of `s->images` images. Declines where the bits might not be those of the product with all taps. */
static samerun_status convolve_images(const convolution_job_t *job, const samerun_shape *shape, const char *image,
                                      const char *gradient, char *result) {
    const int direction = job->direction, is_double = job->is_double, backward = direction == GRADIENT_OF_INPUT;
    const size_t real = is_double ? 8 : 4;
    int64_t size[3], start[3], pad_before[3];
    samerun_matrix_product product = {.batches = shape->groups, .c = result, .bias = job->bias};
    samerun_reordered_columns borders = {0};
    int copied;
    for (int i = 0; i < 3; i++) {
        int64_t reach = (shape->taps[i] - 1) * shape->dilation[i];
        /* Gradient of the input i: tap t of output o where o * stride == i + padding - t * dilation. */
        pad_before[i] = backward ? (reach > shape->padding[i] ? reach - shape->padding[i] : 0) : shape->padding[i];
        start[i] = shape->padding[i] + pad_before[i];
        size[i] = backward ? shape->in[i] - 1 + start[i] + 1 : (shape->out[i] - 1) * shape->stride[i] + reach + 1;
        if (!backward && size[i] < shape->in[i] + pad_before[i]) size[i] = shape->in[i] + pad_before[i];
    }
    const int direct = direction == GRADIENT_OF_WEIGHT && !is_double && samerun_direct_weight_gradient_is_faster(shape);
    const int64_t phases =
        !backward && !direct && shape->taps[2] > 1 ? shape->stride[2] : 1; /* one tap needs a part of the image only */
    size[2] = (size[2] + phases - 1) / phases * phases;
    char *copy = backward ? samerun_copy_image_padded(gradient, shape->images * shape->outputs, shape->out, size,
                                                      shape->stride, pad_before, 1, real, &copied)
                          : samerun_copy_image_padded(image, shape->images * shape->inputs, shape->in, size, one,
                                                      pad_before, phases, real, &copied);
    if (copied && copy == NULL) return SAMERUN_NO_MEMORY;
    const void *wide = copied ? copy : backward ? gradient : image;
    if (direct) {
        const samerun_status status =
            samerun_direct_weight_gradient(shape, size, wide, (const float *)gradient, (float *)result);
        if (copied) samerun_release_scratch(SCRATCH_IMAGE, copy);
        return status;
    }
    product.b = wide;
    product.b_slack = copied;
    product.a = job->transposed_weight            ? job->transposed_weight
                : direction == GRADIENT_OF_WEIGHT ? gradient
                                                  : job->weight;
    product.bias_batch = backward ? shape->inputs / shape->groups : shape->outputs / shape->groups;
    product.bias_row = 1;
    const int made = direction == FORWARD ? describe_forward_product(shape, &product, size, phases)
                     : direction == GRADIENT_OF_INPUT
                         ? describe_input_gradient_product(shape, &product, size, start, job->transposed_weight != NULL)
                         : describe_weight_gradient_product(shape, &product, size, phases);
    const samerun_status left_out =
        made && job->leave_out_taps
            ? samerun_skip_padding_taps(shape, backward, is_double, job->weight, &product, &borders)
            : SAMERUN_DECLINED;
    samerun_status status =
        samerun_multiply_and_free_tables(&product, is_double, made && left_out != SAMERUN_NO_MEMORY);
    if (left_out == SAMERUN_DONE) {
        const samerun_status put = samerun_scatter_reordered_columns(shape, backward, result, &borders);
        if (status == SAMERUN_DONE) status = put;
    }
    if (copied) samerun_release_scratch(SCRATCH_IMAGE, copy);
    return status;
}

static void convolve_image_parts_range(void *args, int64_t begin, int64_t end) {
    convolution_job_t *job = args;
    const int64_t real = job->is_double ? 8 : 4, in = job->shape->inputs * samerun_volume(job->shape->in) * real;
    const int64_t out = job->shape->outputs * samerun_volume(job->shape->out) * real;
    for (int64_t part = begin; part < end; part++) {
        const int64_t first = job->shape->images * part / job->parts,
                      last = job->shape->images * (part + 1) / job->parts;
        const int backward = job->direction == GRADIENT_OF_INPUT;
        samerun_shape shape = *job->shape;
        shape.images = last - first;
        const char *image = backward ? NULL : job->image + first * in,
                   *gradient = backward ? job->gradient + first * out : NULL;
        const samerun_status status =
            convolve_images(job, &shape, image, gradient, job->result + first * (backward ? in : out));
        if (status != SAMERUN_DONE) __atomic_store_n(&job->status, status, __ATOMIC_RELAXED);
    }
}

/* Into how many parts the images are cut, each of which one thread takes from start to end, so that what it has spread is
 * still at hand when it is multiplied. 1 where the packed rows would be many beside that, columns few, or threads not be used
 * evenly. */
static int64_t choose_image_part_count(const convolution_job_t *job) {
    const samerun_shape *shape = job->shape;
    const int backward = job->direction == GRADIENT_OF_INPUT;
    const int64_t values =
        backward ? shape->outputs * samerun_volume(shape->out) : shape->inputs * samerun_volume(shape->in);
    const int64_t bytes = values * (job->is_double ? 8 : 4);
    const int64_t threads = samerun_get_threads();
    const int64_t parts = bytes * shape->images / CACHED_IMAGE_BYTES / threads * threads + threads;
    if (job->direction == GRADIENT_OF_WEIGHT || samerun_volume(shape->taps) == 1) return 1;
    if ((backward ? shape->inputs : shape->outputs) / shape->groups > SAMERUN_FEW_ROWS) return 1;
    if (bytes > CACHED_IMAGE_BYTES || bytes * shape->images <= CACHED_IMAGE_BYTES * threads) return 1;
    if (shape->images % threads != 0 && shape->images < IMAGES_PER_THREAD * threads) return 1;
    if (shape->images * samerun_volume(backward ? shape->in : shape->out) < ENOUGH_COLUMNS * parts) return 1;
    return parts < shape->images ? parts : shape->images;
}

static samerun_status convolve_in_image_parts(convolution_job_t *job) {
    /* With one tap, packing reads the weight as fast as it lies. */
    const int weight_is_transposed = job->direction == GRADIENT_OF_INPUT && samerun_volume(job->shape->taps) > 1;
    void *transposed_weight =
        weight_is_transposed ? samerun_copy_weight_transposed(job->weight, job->shape, job->is_double ? 8 : 4) : NULL;
    if (weight_is_transposed && !transposed_weight) return SAMERUN_NO_MEMORY;
    job->transposed_weight = transposed_weight, job->status = SAMERUN_DONE, job->parts = choose_image_part_count(job);
    if (job->parts > 1) samerun_parallel_for(job->parts, 1, convolve_image_parts_range, job);
    else job->status = convolve_images(job, job->shape, job->image, job->gradient, job->result);
    if (transposed_weight) samerun_release_scratch(SCRATCH_WEIGHT, transposed_weight);
    return job->status;
}

/* numbers: images, groups, input and output channels, then three each of input size, output size, taps, stride,
 * padding, dilation. Tensors are contiguous: `image` [n, c, d, h, w] (the input; its gradient's source is
 * `gradient` [n, c', d', h', w']), `weight` [c', c / groups, taps].
 *   direction 0: result [n, c', d', h', w'] from image, weight, bias (or NULL)
 *   direction 1: result [n, c, d, h, w] from gradient, weight, bias (or NULL; transposed convolutions have one)
 *   direction 2: result [c', c / groups, taps] from gradient, image
 * Done, or no memory. */
samerun_status samerun_convolution(int direction, int is_double, const int64_t *packed_shape, const void *image,
                                   const void *weight, const void *gradient, const void *bias, void *result) {
    samerun_shape shape;
    memcpy(&shape, packed_shape, sizeof shape);
    if (direction != GRADIENT_OF_WEIGHT && !is_double) {
        const int backward = direction == GRADIENT_OF_INPUT;
        const samerun_status status =
            samerun_direct_convolution(&shape, backward, backward ? gradient : image, weight, bias, result);
        if (status != SAMERUN_DECLINED) return status;
    }
    if (direction == GRADIENT_OF_INPUT) {
        const samerun_status status = samerun_strided_input_gradient(&shape, is_double, weight, gradient, bias, result);
        if (status != SAMERUN_DECLINED) return status;
    }
    convolution_job_t job = {
        direction, is_double,   direction != GRADIENT_OF_WEIGHT, &shape, image, weight, NULL, gradient, bias, result,
        1,         SAMERUN_DONE};
    const samerun_status status = convolve_in_image_parts(&job);
    job.leave_out_taps = 0;
    return status == SAMERUN_DECLINED ? convolve_in_image_parts(&job) : status;
}
