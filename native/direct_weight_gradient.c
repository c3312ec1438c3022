/* The gradient of the weight of a convolution in single precision, read directly from the image.
 *
 * Lanes are channels of the output, and each tap of a channel of the input is a sum of its own. Where there are few
 * sums, threads take blocks of k, whose sums are kept and added in order at last; else each takes some sums from start
 * to end.
 */
#include "direct_convolution.h"

#if defined(__x86_64__)

#include <stdlib.h>
#include <string.h>

#include "simd_level.h"
#include "thread_pool.h"
#include "scratch.h"

enum { LANES = SAMERUN_DIRECT_LANES, VECTORS = SAMERUN_DIRECT_VECTORS, WIDTH = LANES * VECTORS };
enum { COLUMNS = SAMERUN_DIRECT_PIXELS };
enum {
    KEPT = 1 << 20,              /* numbers of the sums of all blocks */
    FEW_ROWS = SAMERUN_FEW_ROWS, /* of the product: channels of the output */
    FEW_CHANNELS = 4,            /* of the input */
    WORTH_A_THREAD = 1 << 19     /* products */
};

typedef struct {
    const samerun_convolution_shape *shape;
    const float *image, *gradient;
    float *result, *sums;
    int64_t *offset; /* in the image of each column */
    int64_t in, out; /* channels of a group */
    int64_t area, line, plane; /* of the image: values of a channel, of a line, of a plane */
    int64_t pixels, columns, k;
    int64_t blocks, parts, k_blocks; /* of channels; of columns for each of those; of k */
    int failed;
} weight_gradient_t;

static void fill_column_offsets(const weight_gradient_t *job) {
    const samerun_convolution_shape *shape = job->shape;
    int64_t *to = job->offset;
    for (int64_t channel = 0; channel < job->in; channel++)
        for (int64_t d = 0; d < shape->taps[0]; d++)
            for (int64_t h = 0; h < shape->taps[1]; h++)
                for (int64_t w = 0; w < shape->taps[2]; w++)
                    *to++ = channel * job->area + d * shape->dilation[0] * job->plane +
                            h * shape->dilation[1] * job->line + w * shape->dilation[2];
}

/* The lines of a block of k, from its first image on; how many. The gradient of the block goes to `transposed`. */
static int64_t list_pixel_runs_and_transpose_gradient(const weight_gradient_t *job, int64_t k_begin, int64_t k_end,
                                                      int64_t channel, int64_t channels, int64_t width,
                                                      float *transposed, samerun_direct_pixel_run *runs) {
    const samerun_convolution_shape *shape = job->shape;
    const int64_t all_channels = shape->groups * job->out, line_pixels = shape->out[2], first = k_begin / job->pixels;
    int64_t run_count = 0;
    for (int64_t stop; k_begin < k_end; k_begin = stop) {
        const int64_t image = k_begin / job->pixels, from = k_begin % job->pixels;
        stop = min_int64(k_end, (image + 1) * job->pixels);
        samerun_transpose_and_find_negative_zero(transposed, width,
                                            job->gradient + (image * all_channels + channel) * job->pixels + from,
                                            job->pixels, channels, stop - k_begin, NULL);
        transposed += (stop - k_begin) * width;
        for (int64_t p = from, left = stop - k_begin, run_pixels; left; p += run_pixels, left -= run_pixels) {
            const int64_t w = p % line_pixels, h = p / line_pixels % shape->out[1], d = p / line_pixels / shape->out[1];
            run_pixels = min_int64(line_pixels - w, left);
            runs[run_count++] = (samerun_direct_pixel_run){(image - first) * shape->groups * job->in * job->area +
                                                               d * shape->stride[0] * job->plane +
                                                               h * shape->stride[1] * job->line + w * shape->stride[2],
                                                           run_pixels};
        }
    }
    return run_count;
}

/* Some columns of a block of channels, over some blocks of k. `separate_sums`: whether each of these has sums of its
 * own. */
static void sum_columns_of_k_blocks(const weight_gradient_t *job, int64_t channel_block, int64_t column_begin,
                                    int64_t column_end, int64_t k_block_begin, int64_t k_block_end, int separate_sums,
                                    float *transposed, samerun_direct_pixel_run *runs) {
    const int64_t group = channel_block / job->blocks, channel = channel_block % job->blocks * WIDTH;
    const int vectors = samerun_direct_vectors_in_channel_block(job->out, channel_block % job->blocks);
    const int64_t width = vectors * LANES, channels = min_int64(width, job->out - channel);
    const int64_t tiles = ceil_divide(column_end - column_begin, COLUMNS);
    if (channels < width) memset(transposed, 0, (size_t)(SAMERUN_BLOCK * width) * sizeof *transposed);
    samerun_weight_gradient_tile_args columns_args = {
        .gradient = transposed, .line = runs, .step = job->shape->stride[2]};
    for (; k_block_begin < k_block_end; k_block_begin++) {
        const int64_t k = k_block_begin * SAMERUN_BLOCK, end = min_int64(k + SAMERUN_BLOCK, job->k);
        float *sums =
            job->sums + ((separate_sums ? k_block_begin : 0) * job->shape->groups * job->blocks + channel_block) *
                            job->columns * WIDTH;
        columns_args.lines = list_pixel_runs_and_transpose_gradient(job, k, end, group * job->out + channel, channels,
                                                                    width, transposed, runs);
        columns_args.image = job->image + (k / job->pixels * job->shape->groups + group) * job->in * job->area;
        columns_args.accumulate = !separate_sums && k_block_begin;
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t first = column_begin + (column_end - column_begin) * tile / tiles;
            const int64_t last = column_begin + (column_end - column_begin) * (tile + 1) / tiles;
            columns_args.offset = job->offset + first, columns_args.sums = sums + first * width;
            samerun_accumulate_weight_gradient_tile(&columns_args, (int)(last - first), vectors);
        }
    }
}

/* The sums of a block of channels: those of all blocks of k are added, and turned into the result. */
static void reduce_and_write_sums_range(void *weight_gradient_job, int64_t item_begin, int64_t item_end) {
    weight_gradient_t *job = weight_gradient_job;
    const int64_t step = job->shape->groups * job->blocks * job->columns * WIDTH;
    for (int64_t channel_block = item_begin / job->parts; item_begin < item_end;
         item_begin++, channel_block = item_begin / job->parts) {
        const int64_t group = channel_block / job->blocks, channel = channel_block % job->blocks * WIDTH,
                      part = item_begin % job->parts;
        const int64_t column = job->columns * part / job->parts, column_end = job->columns * (part + 1) / job->parts;
        const int64_t width = samerun_direct_vectors_in_channel_block(job->out, channel_block % job->blocks) * LANES;
        const int64_t channels = min_int64(width, job->out - channel);
        float *sums = job->sums + channel_block * job->columns * WIDTH + column * width;
        for (int64_t block = 1; block < job->k_blocks; block++)
            for (int64_t i = 0; i < (column_end - column) * width; i++) sums[i] += sums[block * step + i];
        samerun_transpose_and_find_negative_zero(job->result + (group * job->out + channel) * job->columns + column,
                                            job->columns, sums, width, column_end - column, channels, NULL);
    }
}

typedef struct {
    float transposed[SAMERUN_BLOCK * WIDTH];
    samerun_direct_pixel_run line[SAMERUN_BLOCK];
} block_t;

static void sum_columns_range(void *weight_gradient_job, int64_t item_begin, int64_t item_end) {
    weight_gradient_t *job = weight_gradient_job;
    block_t *block = samerun_borrow_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    for (int64_t item = item_begin; block && item < item_end; item++) {
        const int64_t channel_block = item / job->parts, part = item % job->parts;
        sum_columns_of_k_blocks(job, channel_block, job->columns * part / job->parts,
                                job->columns * (part + 1) / job->parts, 0, job->k_blocks, 0, block->transposed,
                                block->line);
    }
    if (block) samerun_release_scratch(SCRATCH_PANELS, block);
}

static void compute_k_block_partial_sums_range(void *weight_gradient_job, int64_t k_block_begin, int64_t k_block_end) {
    weight_gradient_t *job = weight_gradient_job;
    block_t *block = samerun_borrow_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    for (int64_t channel_block = 0; block && channel_block < job->shape->groups * job->blocks; channel_block++)
        sum_columns_of_k_blocks(job, channel_block, 0, job->columns, k_block_begin, k_block_end, 1, block->transposed,
                                block->line);
    if (block) samerun_release_scratch(SCRATCH_PANELS, block);
}

/* The product is as fast or faster where columns need no packing, lanes would be idle, or packing pays. */
int samerun_direct_weight_gradient_is_faster(const samerun_convolution_shape *shape) {
    if (samerun_current_simd_level() != LEVEL_AVX512 || !shape->groups || samerun_volume(shape->taps) == 1) return 0;
    const int64_t out = shape->outputs / shape->groups, in = shape->inputs / shape->groups;
    if (!out || !in || !shape->images || !samerun_volume(shape->out)) return 0;
    return out * 8 >= ceil_divide(out, LANES) * LANES * 7 && (out <= FEW_ROWS || in <= FEW_CHANNELS);
}

samerun_status samerun_direct_weight_gradient(const samerun_convolution_shape *shape, const int64_t *padded_size,
                                              const float *padded_image, const float *gradient, float *result) {
    weight_gradient_t job = {.shape = shape, .image = padded_image, .gradient = gradient, .result = result};
    job.in = shape->inputs / shape->groups, job.out = shape->outputs / shape->groups,
    job.pixels = samerun_volume(shape->out);
    job.line = padded_size[2], job.plane = padded_size[1] * padded_size[2], job.area = samerun_volume(padded_size);
    job.columns = job.in * samerun_volume(shape->taps), job.k = shape->images * job.pixels;
    job.blocks = ceil_divide(job.out, WIDTH), job.k_blocks = ceil_divide(job.k, SAMERUN_BLOCK);
    const int64_t numbers = shape->groups * job.blocks * job.columns * WIDTH,
                  threads = samerun_get_num_threads_for_new_job();
    const int kept = threads > 1 && numbers <= KEPT / job.k_blocks && job.k_blocks >= 2 * threads;
    job.offset = malloc((size_t)(job.columns + 1) * sizeof *job.offset);
    job.sums = samerun_borrow_scratch(SCRATCH_PHASE, (size_t)(numbers * (kept ? job.k_blocks : 1)) * sizeof *job.sums);
    job.failed = !job.offset || !job.sums;
    if (!job.failed) {
        fill_column_offsets(&job);
        job.parts = 1;
        if (kept) {
            samerun_parallel_for(job.k_blocks, 1 + WORTH_A_THREAD / (SAMERUN_BLOCK * numbers), compute_k_block_partial_sums_range,
                                 &job);
        } else {
            if (threads > 1)
                job.parts =
                    min_int64(ceil_divide(2 * threads, shape->groups * job.blocks), ceil_divide(job.columns, COLUMNS));
            samerun_parallel_for(shape->groups * job.blocks * job.parts,
                                 1 + WORTH_A_THREAD * job.parts / (job.k * job.columns * WIDTH), sum_columns_range,
                                 &job);
            job.k_blocks = 1; /* have been added */
        }
        if (!job.failed)
            samerun_parallel_for(shape->groups * job.blocks * job.parts, 1 + 65536 / numbers,
                                 reduce_and_write_sums_range, &job);
    }
    if (job.sums) samerun_release_scratch(SCRATCH_PHASE, job.sums);
    free(job.offset);
    return job.failed ? SAMERUN_NO_MEMORY : SAMERUN_DONE;
}

#endif
