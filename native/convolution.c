/* Convolutions in one to three dimensions, forward and both gradients, as products of matrices.
 *
 * The image is copied once into one with its padding (and, for a gradient of the input that strided_input_gradient.c
 * does not take, with zeros between the values of a strided gradient). In that copy every tap of every output lies at a
 * fixed distance, so the unfolded image is two tables of offsets and is never written out. Where outputs are a stride
 * apart, what one tap meets of a line lies side by side in the copy. Where there is a faster way to the same bits
 * (direct_convolution.h, strided_input_gradient.c), it is taken.
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

/* samerun_fill_run_lengths, where every line of the table is the first one moved: in a quarter of the time. */
static void fill_run_lengths_of_shifted_lines(samerun_offset_table *table, int64_t line_length) {
    samerun_offset_table first_line = {table->offset, table->run, line_length};
    const int32_t *const first_runs = table->run;
    int64_t last_run = 0; /* where the last run of a line begins */
    if (table->size == 0) return;
    samerun_fill_run_lengths(&first_line);
    while (last_run + first_runs[last_run] < line_length) last_run += first_runs[last_run];
    for (int64_t line_begin = table->size - line_length; line_begin >= 0; line_begin -= line_length) {
        const int joins = line_begin + line_length < table->size &&
                          table->offset[line_begin + line_length] == table->offset[line_begin + line_length - 1] + 1;
        const int32_t more = joins && line_length < INT32_MAX - table->run[line_begin + line_length]
                                 ? table->run[line_begin + line_length]
                                 : 0;
        for (int64_t i = 0; i < last_run; i++) table->run[line_begin + i] = first_runs[i];
        for (int64_t i = last_run; i < line_length; i++) table->run[line_begin + i] = first_runs[i] + more;
    }
}

/* outer * volume of `inner_size` entries: outer * outer_stride + each position of `inner_size` times its steps, in
 * an image of `padded_size` whose lines are kept in `stride_phases` phases (samerun_polyphase_index). */
static bool build_polyphase_grid_offset_table(samerun_offset_table *table, int64_t outer_count, int64_t outer_stride,
                                              const int64_t *inner_size, const int64_t *inner_step,
                                              const int64_t *padded_size, int64_t start_offset, int64_t stride_phases) {
    if (!samerun_allocate_offset_table(table, outer_count * samerun_volume(inner_size))) return 0;
    const int64_t n = inner_size[2], *const line =
                                         table->offset; /* the first one, whose places are found by divisions */
    int64_t *to = table->offset;
    for (int64_t w = 0; table->size && w < n; w++)
        to[w] = start_offset + samerun_polyphase_index(w * inner_step[2], padded_size[2], stride_phases);
    for (int64_t o = 0; o < outer_count; o++)
        for (int64_t d = 0; d < inner_size[0]; d++)
            for (int64_t h = 0; h < inner_size[1]; h++, to += n) {
                const int64_t base =
                    o * outer_stride + ((d * inner_step[0]) * padded_size[1] + h * inner_step[1]) * padded_size[2];
                for (int64_t w = 0; w < n; w++) to[w] = line[w] + base; /* 0 for the first one */
            }
    fill_run_lengths_of_shifted_lines(table, n);
    return 1;
}

static bool build_grid_offset_table(samerun_offset_table *table, int64_t outer_count, int64_t outer_stride,
                                    const int64_t *inner_size, const int64_t *inner_step, const int64_t *padded_size,
                                    int64_t start_offset) {
    return build_polyphase_grid_offset_table(table, outer_count, outer_stride, inner_size, inner_step, padded_size,
                                             start_offset, 1);
}

static const int64_t one[3] = {1, 1, 1};

static bool try_set_up_forward_gemm(const samerun_convolution_shape *shape, samerun_gemm *gemm,
                                    const int64_t *padded_size, int64_t stride_phases) {
    int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
            taps = samerun_volume(shape->taps);
    int64_t pixels = samerun_volume(shape->out), area = samerun_volume(padded_size);
    gemm->m = out;
    gemm->k = in * taps;
    gemm->n = shape->images * pixels;
    gemm->c_row = pixels;
    return samerun_build_strided_offsets(&gemm->a_batch, shape->groups, out * in * taps) &&
           samerun_build_strided_offsets(&gemm->b_batch, shape->groups, in * area) &&
           samerun_build_strided_offsets(&gemm->c_batch, shape->groups, out * pixels) &&
           build_grid_offset_table(&gemm->a_rows, out, in * taps, one, one, one, 0) &&
           build_grid_offset_table(&gemm->a_k, in * taps, 1, one, one, one, 0) &&
           build_polyphase_grid_offset_table(&gemm->b_k, in, area, shape->taps, shape->dilation, padded_size, 0,
                                             stride_phases) &&
           build_polyphase_grid_offset_table(&gemm->b_columns, shape->images, shape->inputs * area, shape->out,
                                             shape->stride, padded_size, 0, stride_phases) &&
           build_grid_offset_table(&gemm->c_columns, shape->images, shape->outputs * pixels, shape->out, one,
                                   shape->out, 0);
}

/* `weight_is_transposed`: the weight is samerun_borrow_transposed_weight_or_null. */
static bool try_set_up_input_gradient_gemm(const samerun_convolution_shape *shape, samerun_gemm *gemm,
                                           const int64_t *padded_size, const int64_t *first_position,
                                           int weight_is_transposed) {
    int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
            taps = samerun_volume(shape->taps);
    int64_t pixels = samerun_volume(shape->in), area = samerun_volume(padded_size), back[3];
    for (int i = 0; i < 3; i++) back[i] = -shape->dilation[i];
    gemm->m = in;
    gemm->k = out * taps;
    gemm->n = shape->images * pixels;
    gemm->c_row = pixels;
    return samerun_build_strided_offsets(&gemm->a_batch, shape->groups, out * in * taps) &&
           samerun_build_strided_offsets(&gemm->b_batch, shape->groups, out * area) &&
           samerun_build_strided_offsets(&gemm->c_batch, shape->groups, in * pixels) &&
           build_grid_offset_table(&gemm->a_rows, in, weight_is_transposed ? out * taps : taps, one, one, one, 0) &&
           build_grid_offset_table(&gemm->a_k, out, weight_is_transposed ? taps : in * taps, shape->taps, one,
                                   shape->taps, 0) &&
           build_grid_offset_table(&gemm->b_k, out, area, shape->taps, back, padded_size, 0) &&
           build_grid_offset_table(
               &gemm->b_columns, shape->images, shape->outputs * area, shape->in, one, padded_size,
               (first_position[0] * padded_size[1] + first_position[1]) * padded_size[2] + first_position[2]) &&
           build_grid_offset_table(&gemm->c_columns, shape->images, shape->inputs * pixels, shape->in, one, shape->in,
                                   0);
}

static bool try_set_up_weight_gradient_gemm(const samerun_convolution_shape *shape, samerun_gemm *gemm,
                                            const int64_t *padded_size, int64_t stride_phases) {
    int64_t in = shape->inputs / shape->groups, out = shape->outputs / shape->groups,
            taps = samerun_volume(shape->taps);
    int64_t pixels = samerun_volume(shape->out), area = samerun_volume(padded_size);
    gemm->m = out;
    gemm->k = shape->images * pixels;
    gemm->n = in * taps;
    gemm->c_row = in * taps;
    return samerun_build_strided_offsets(&gemm->a_batch, shape->groups, out * pixels) &&
           samerun_build_strided_offsets(&gemm->b_batch, shape->groups, in * area) &&
           samerun_build_strided_offsets(&gemm->c_batch, shape->groups, out * in * taps) &&
           build_grid_offset_table(&gemm->a_rows, out, pixels, one, one, one, 0) &&
           build_grid_offset_table(&gemm->a_k, shape->images, shape->outputs * pixels, shape->out, one, shape->out,
                                   0) &&
           build_polyphase_grid_offset_table(&gemm->b_k, shape->images, shape->inputs * area, shape->out, shape->stride,
                                             padded_size, 0, stride_phases) &&
           build_polyphase_grid_offset_table(&gemm->b_columns, in, area, shape->taps, shape->dilation, padded_size, 0,
                                             stride_phases) &&
           build_grid_offset_table(&gemm->c_columns, in * taps, 1, one, one, one, 0);
}

typedef struct {
    int direction, is_double, skip_padding_taps; /* where those beyond the border change no bit */
    const samerun_convolution_shape *shape;
    const char *image, *weight, *transposed_weight, *gradient,
        *bias; /* transposed_weight: NULL, or the weight in that order */
    char *result;
    int64_t parts; /* of the images */
    samerun_status status;
} convolution_job_t;

/* Of `shape->images` images. Declines where the bits might not be those of the product with all taps. */
static samerun_status try_convolve_images(const convolution_job_t *job, const samerun_convolution_shape *shape,
                                          const char *image, const char *gradient, char *result) {
    const int direction = job->direction, is_double = job->is_double,
              is_input_gradient = direction == GRADIENT_OF_INPUT;
    const size_t element_size = is_double ? 8 : 4;
    int64_t padded_size[3], start[3], pad_before[3];
    samerun_gemm gemm = {.batches = shape->groups, .c = result, .bias = job->bias};
    samerun_reordered_columns reordered = {0};
    int copied;
    for (int i = 0; i < 3; i++) {
        int64_t reach = (shape->taps[i] - 1) * shape->dilation[i];
        /* Gradient of the input i: tap t of output o where o * stride == i + padding - t * dilation. */
        pad_before[i] =
            is_input_gradient ? (reach > shape->padding[i] ? reach - shape->padding[i] : 0) : shape->padding[i];
        start[i] = shape->padding[i] + pad_before[i];
        padded_size[i] =
            is_input_gradient ? shape->in[i] - 1 + start[i] + 1 : (shape->out[i] - 1) * shape->stride[i] + reach + 1;
        if (!is_input_gradient && padded_size[i] < shape->in[i] + pad_before[i])
            padded_size[i] = shape->in[i] + pad_before[i];
    }
    const int direct = direction == GRADIENT_OF_WEIGHT && !is_double && samerun_direct_weight_gradient_is_faster(shape);
    const int64_t stride_phases = !is_input_gradient && !direct && shape->taps[2] > 1
                                      ? shape->stride[2]
                                      : 1; /* one tap needs a part of the image only */
    padded_size[2] = (padded_size[2] + stride_phases - 1) / stride_phases * stride_phases;
    char *copy =
        is_input_gradient
            ? samerun_copy_padded_to_scratch_if_needed(gradient, shape->images * shape->outputs, shape->out,
                                                       padded_size, shape->stride, pad_before, 1, element_size, &copied)
            : samerun_copy_padded_to_scratch_if_needed(image, shape->images * shape->inputs, shape->in, padded_size,
                                                       one, pad_before, stride_phases, element_size, &copied);
    if (copied && copy == NULL) return SAMERUN_NO_MEMORY;
    const void *padded = copied ? copy : is_input_gradient ? gradient : image;
    if (direct) {
        const samerun_status status =
            samerun_direct_weight_gradient(shape, padded_size, padded, (const float *)gradient, (float *)result);
        if (copied) samerun_release_scratch(SCRATCH_IMAGE, copy);
        return status;
    }
    gemm.b = padded;
    gemm.b_slack = copied;
    gemm.a = job->transposed_weight ? job->transposed_weight : direction == GRADIENT_OF_WEIGHT ? gradient : job->weight;
    gemm.bias_batch = is_input_gradient ? shape->inputs / shape->groups : shape->outputs / shape->groups;
    gemm.bias_row = 1;
    const int tables_allocated =
        direction == FORWARD ? try_set_up_forward_gemm(shape, &gemm, padded_size, stride_phases)
        : direction == GRADIENT_OF_INPUT
            ? try_set_up_input_gradient_gemm(shape, &gemm, padded_size, start, job->transposed_weight != NULL)
            : try_set_up_weight_gradient_gemm(shape, &gemm, padded_size, stride_phases);
    const samerun_status skip_status =
        tables_allocated && job->skip_padding_taps
            ? samerun_try_skip_padding_taps(shape, is_input_gradient, is_double, job->weight, &gemm, &reordered)
            : SAMERUN_DECLINED;
    samerun_status status =
        samerun_run_gemm_and_free_tables(&gemm, is_double, tables_allocated && skip_status != SAMERUN_NO_MEMORY);
    if (skip_status == SAMERUN_DONE) {
        const samerun_status scatter_status =
            samerun_try_scatter_and_free_columns(shape, is_input_gradient, result, &reordered);
        if (status == SAMERUN_DONE) status = scatter_status;
    }
    if (copied) samerun_release_scratch(SCRATCH_IMAGE, copy);
    return status;
}

static void convolve_image_parts_range(void *convolution_job, int64_t part_begin, int64_t part_end) {
    convolution_job_t *job = convolution_job;
    const int64_t element_size = job->is_double ? 8 : 4,
                  in = job->shape->inputs * samerun_volume(job->shape->in) * element_size;
    const int64_t out = job->shape->outputs * samerun_volume(job->shape->out) * element_size;
    for (int64_t part = part_begin; part < part_end; part++) {
        const int64_t first = job->shape->images * part / job->parts,
                      last = job->shape->images * (part + 1) / job->parts;
        const int is_input_gradient = job->direction == GRADIENT_OF_INPUT;
        samerun_convolution_shape shape = *job->shape;
        shape.images = last - first;
        const char *image = is_input_gradient ? NULL : job->image + first * in,
                   *gradient = is_input_gradient ? job->gradient + first * out : NULL;
        const samerun_status status =
            try_convolve_images(job, &shape, image, gradient, job->result + first * (is_input_gradient ? in : out));
        if (status != SAMERUN_DONE) __atomic_store_n(&job->status, status, __ATOMIC_RELAXED);
    }
}

/* Into how many parts the images are cut, each of which one thread takes from start to end, so that what it has
 * spread is still at hand when it is multiplied. 1 where the packed rows would be many beside that, columns few, or
 * threads not be used evenly. */
static int64_t choose_image_part_count(const convolution_job_t *job) {
    const samerun_convolution_shape *shape = job->shape;
    const int is_input_gradient = job->direction == GRADIENT_OF_INPUT;
    const int64_t values =
        is_input_gradient ? shape->outputs * samerun_volume(shape->out) : shape->inputs * samerun_volume(shape->in);
    const int64_t bytes = values * (job->is_double ? 8 : 4);
    const int64_t threads = samerun_get_pool_num_threads();
    const int64_t parts = bytes * shape->images / CACHED_IMAGE_BYTES / threads * threads + threads;
    if (job->direction == GRADIENT_OF_WEIGHT || samerun_volume(shape->taps) == 1) return 1;
    if ((is_input_gradient ? shape->inputs : shape->outputs) / shape->groups > SAMERUN_FEW_ROWS) return 1;
    if (bytes > CACHED_IMAGE_BYTES || bytes * shape->images <= CACHED_IMAGE_BYTES * threads) return 1;
    if (shape->images % threads != 0 && shape->images < IMAGES_PER_THREAD * threads) return 1;
    if (shape->images * samerun_volume(is_input_gradient ? shape->in : shape->out) < ENOUGH_COLUMNS * parts) return 1;
    return parts < shape->images ? parts : shape->images;
}

static samerun_status try_convolve_in_image_parts(convolution_job_t *job) {
    /* With one tap, packing reads the weight as fast as it lies. */
    const int weight_is_transposed = job->direction == GRADIENT_OF_INPUT && samerun_volume(job->shape->taps) > 1;
    void *transposed_weight =
        weight_is_transposed ? samerun_borrow_transposed_weight_or_null(job->weight, job->shape, job->is_double ? 8 : 4)
                             : NULL;
    if (weight_is_transposed && !transposed_weight) return SAMERUN_NO_MEMORY;
    job->transposed_weight = transposed_weight, job->status = SAMERUN_DONE, job->parts = choose_image_part_count(job);
    if (job->parts > 1) samerun_parallel_for(job->parts, 1, convolve_image_parts_range, job);
    else job->status = try_convolve_images(job, job->shape, job->image, job->gradient, job->result);
    if (transposed_weight) samerun_release_scratch(SCRATCH_WEIGHT, transposed_weight);
    return job->status;
}

_Static_assert(sizeof(samerun_convolution_shape) == 22 * sizeof(int64_t), "as numerics/convolution_shape.py packs it");

/* packed_shape: a samerun_convolution_shape. Tensors are contiguous: `image` [n, c, d, h, w] (the input; its gradient's source is
 * `gradient` [n, c', d', h', w']), `weight` [c', c / groups, taps].
 *   direction 0: result [n, c', d', h', w'] from image, weight, bias (or NULL)
 *   direction 1: result [n, c, d, h, w] from gradient, weight, bias (or NULL; transposed convolutions have one)
 *   direction 2: result [c', c / groups, taps] from gradient, image
 * Done, or no memory. */
samerun_status samerun_convolution(int direction, int is_double, const int64_t *packed_shape, const void *image,
                                   const void *weight, const void *gradient, const void *bias_or_null, void *result) {
    samerun_convolution_shape shape;
    memcpy(&shape, packed_shape, sizeof shape);
    if (direction != GRADIENT_OF_WEIGHT && !is_double) {
        const int is_input_gradient = direction == GRADIENT_OF_INPUT;
        const samerun_status status = samerun_try_direct_convolution(
            &shape, is_input_gradient, is_input_gradient ? gradient : image, weight, bias_or_null, result);
        if (status != SAMERUN_DECLINED) return status;
    }
    if (direction == GRADIENT_OF_INPUT) {
        const samerun_status status =
            samerun_try_strided_input_gradient(&shape, is_double, weight, gradient, bias_or_null, result);
        if (status != SAMERUN_DECLINED) return status;
    }
    convolution_job_t job = {direction, is_double, direction != GRADIENT_OF_WEIGHT,
                             &shape,    image,     weight,
                             NULL,      gradient,  bias_or_null,
                             result,    1,         SAMERUN_DONE};
    const samerun_status status = try_convolve_in_image_parts(&job);
    job.skip_padding_taps = 0;
    return status == SAMERUN_DECLINED ? try_convolve_in_image_parts(&job) : status;
}
