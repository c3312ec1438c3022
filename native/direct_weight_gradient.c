/* The gradient of the weight of a convolution in single precision, read directly from the image.
 *
 * Lanes are channels of the output, and each tap of a channel of the input is a sum of its own. Where there are few sums,
 * threads take blocks of k, whose sums are kept and added in order at last; else each takes some sums from start to end.
 */
#include "direct_convolution.h"

#if defined(__x86_64__)

#include <stdlib.h>
#include <string.h>

#include "level.h"
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
    const samerun_shape *shape;
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
    const samerun_shape *shape = job->shape;
    int64_t *to = job->offset;
    for (int64_t channel = 0; channel < job->in; channel++)
        for (int64_t d = 0; d < shape->taps[0]; d++)
            for (int64_t h = 0; h < shape->taps[1]; h++)
                for (int64_t w = 0; w < shape->taps[2]; w++)
                    *to++ = channel * job->area + d * shape->dilation[0] * job->plane +
                            h * shape->dilation[1] * job->line + w * shape->dilation[2];
}

/* The lines of a block of k, from its first image on; how many. The gradient of the block goes to `transposed`. */
static int64_t list_pixel_runs_of_block(const weight_gradient_t *job, int64_t k, int64_t end, int64_t channel,
                                        int64_t channels, int64_t width, float *transposed,
                                        samerun_direct_pixel_run *line) {
    const samerun_shape *shape = job->shape;
    const int64_t all = shape->groups * job->out, wide = shape->out[2], first = k / job->pixels;
    int64_t lines = 0;
    for (int64_t stop; k < end; k = stop) {
        const int64_t image = k / job->pixels, from = k % job->pixels;
        stop = min_int64(end, (image + 1) * job->pixels);
        samerun_transpose_plus_bias(transposed, width, job->gradient + (image * all + channel) * job->pixels + from,
                                    job->pixels, channels, stop - k, NULL);
        transposed += (stop - k) * width;
        for (int64_t p = from, left = stop - k, some; left; p += some, left -= some) {
            const int64_t w = p % wide, h = p / wide % shape->out[1], d = p / wide / shape->out[1];
            some = min_int64(wide - w, left);
            line[lines++] = (samerun_direct_pixel_run){(image - first) * shape->groups * job->in * job->area +
                                                           d * shape->stride[0] * job->plane +
                                                           h * shape->stride[1] * job->line + w * shape->stride[2],
                                                       some};
        }
    }
    return lines;
}

/* Some columns of a block of channels, over some blocks of k. `kept`: whether each of these has sums of its own. */
static void sum_columns_of_k_blocks(const weight_gradient_t *job, int64_t channel_block, int64_t column,
                                    int64_t column_end, int64_t block, int64_t block_end, int kept, float *transposed,
                                    samerun_direct_pixel_run *line) {
    const int64_t group = channel_block / job->blocks, channel = channel_block % job->blocks * WIDTH;
    const int vectors = samerun_direct_vectors_of_block(job->out, channel_block % job->blocks);
    const int64_t width = vectors * LANES, channels = min_int64(width, job->out - channel);
    const int64_t tiles = ceil_divide(column_end - column, COLUMNS);
    if (channels < width) memset(transposed, 0, (size_t)(SAMERUN_BLOCK * width) * sizeof *transposed);
    samerun_weight_gradient_tile_args columns_args = {
        .gradient = transposed, .line = line, .step = job->shape->stride[2]};
    for (; block < block_end; block++) {
        const int64_t k = block * SAMERUN_BLOCK, end = min_int64(k + SAMERUN_BLOCK, job->k);
        float *sums =
            job->sums + ((kept ? block : 0) * job->shape->groups * job->blocks + channel_block) * job->columns * WIDTH;
        columns_args.lines =
            list_pixel_runs_of_block(job, k, end, group * job->out + channel, channels, width, transposed, line);
        columns_args.image = job->image + (k / job->pixels * job->shape->groups + group) * job->in * job->area;
        columns_args.accumulate = !kept && block;
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t first = column + (column_end - column) * tile / tiles;
            const int64_t last = column + (column_end - column) * (tile + 1) / tiles;
            columns_args.offset = job->offset + first, columns_args.sums = sums + first * width;
            samerun_direct_weight_gradient_tile(&columns_args, (int)(last - first), vectors);
        }
    }
}

/* The sums of a block of channels: those of all blocks of k are added, and turned into the result. */
static void reduce_sums_range(void *args, int64_t begin, int64_t end) {
    weight_gradient_t *job = args;
    const int64_t step = job->shape->groups * job->blocks * job->columns * WIDTH;
    for (int64_t channel_block = begin / job->parts; begin < end; begin++, channel_block = begin / job->parts) {
        const int64_t group = channel_block / job->blocks, channel = channel_block % job->blocks * WIDTH,
                      part = begin % job->parts;
        const int64_t column = job->columns * part / job->parts, column_end = job->columns * (part + 1) / job->parts;
        const int64_t width = samerun_direct_vectors_of_block(job->out, channel_block % job->blocks) * LANES;
        const int64_t channels = min_int64(width, job->out - channel);
        float *sums = job->sums + channel_block * job->columns * WIDTH + column * width;
        for (int64_t block = 1; block < job->k_blocks; block++)
            for (int64_t i = 0; i < (column_end - column) * width; i++) sums[i] += sums[block * step + i];
        samerun_transpose_plus_bias(job->result + (group * job->out + channel) * job->columns + column, job->columns,
                                    sums, width, column_end - column, channels, NULL);
    }
}

typedef struct {
    float transposed[SAMERUN_BLOCK * WIDTH];
    samerun_direct_pixel_run line[SAMERUN_BLOCK];
} block_t;

static void sum_columns_range(void *args, int64_t begin, int64_t end) {
    weight_gradient_t *job = args;
    block_t *block = samerun_borrow_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    for (int64_t item = begin; block && item < end; item++) {
        const int64_t channel_block = item / job->parts, part = item % job->parts;
        sum_columns_of_k_blocks(job, channel_block, job->columns * part / job->parts,
                                job->columns * (part + 1) / job->parts, 0, job->k_blocks, 0, block->transposed,
                                block->line);
    }
    if (block) samerun_release_scratch(SCRATCH_PANELS, block);
}

static void sum_k_blocks_range(void *args, int64_t begin, int64_t end) {
    weight_gradient_t *job = args;
    block_t *block = samerun_borrow_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    for (int64_t channel_block = 0; block && channel_block < job->shape->groups * job->blocks; channel_block++)
        sum_columns_of_k_blocks(job, channel_block, 0, job->columns, begin, end, 1, block->transposed, block->line);
    if (block) samerun_release_scratch(SCRATCH_PANELS, block);
}

/* The product is as fast or faster where columns need no packing, lanes would be idle, or packing pays. */
int samerun_direct_weight_gradient_is_faster(const samerun_shape *shape) {
    if (samerun_level() != LEVEL_AVX512 || !shape->groups || samerun_volume(shape->taps) == 1) return 0;
    const int64_t out = shape->outputs / shape->groups, in = shape->inputs / shape->groups;
    if (!out || !in || !shape->images || !samerun_volume(shape->out)) return 0;
    return out * 8 >= ceil_divide(out, LANES) * LANES * 7 && (out <= FEW_ROWS || in <= FEW_CHANNELS);
}

samerun_status samerun_direct_weight_gradient(const samerun_shape *shape, const int64_t *size, const float *image,
                                              const float *gradient, float *result) {
    weight_gradient_t job = {.shape = shape, .image = image, .gradient = gradient, .result = result};
    job.in = shape->inputs / shape->groups, job.out = shape->outputs / shape->groups,
    job.pixels = samerun_volume(shape->out);
    job.line = size[2], job.plane = size[1] * size[2], job.area = samerun_volume(size);
    job.columns = job.in * samerun_volume(shape->taps), job.k = shape->images * job.pixels;
    job.blocks = ceil_divide(job.out, WIDTH), job.k_blocks = ceil_divide(job.k, SAMERUN_BLOCK);
    const int64_t numbers = shape->groups * job.blocks * job.columns * WIDTH,
                  threads = samerun_count_available_threads();
    const int kept = threads > 1 && numbers <= KEPT / job.k_blocks && job.k_blocks >= 2 * threads;
    job.offset = malloc((size_t)(job.columns + 1) * sizeof *job.offset);
    job.sums = samerun_borrow_scratch(SCRATCH_PHASE, (size_t)(numbers * (kept ? job.k_blocks : 1)) * sizeof *job.sums);
    job.failed = !job.offset || !job.sums;
    if (!job.failed) {
        fill_column_offsets(&job);
        job.parts = 1;
        if (kept) {
            samerun_parallel_for(job.k_blocks, 1 + WORTH_A_THREAD / (SAMERUN_BLOCK * numbers), sum_k_blocks_range,
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
            samerun_parallel_for(shape->groups * job.blocks * job.parts, 1 + 65536 / numbers, reduce_sums_range, &job);
    }
    if (job.sums) samerun_release_scratch(SCRATCH_PHASE, job.sums);
    free(job.offset);
    return job.failed ? SAMERUN_NO_MEMORY : SAMERUN_DONE;
}

#endif
