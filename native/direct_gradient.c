/* The gradient of the weight of a convolution in single precision, read directly from the image.
 *
 * Lanes are channels of the output, and each tap of a channel of the input is a sum of its own. Where there are few sums,
 * threads take blocks of k, whose sums are kept and added in order at last; else each takes some sums from start to end.
 */
#include "direct.h"

#if defined(__x86_64__)

#include <stdlib.h>
#include <string.h>

#include "level.h"
#include "pool.h"
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
    const samerun_shape *s;
    const float *image, *gradient;
    float *result, *sums;
    int64_t *offset; /* in the image of each column */
    int64_t in, out; /* channels of a group */
    int64_t area, line, plane; /* of the image: values of a channel, of a line, of a plane */
    int64_t pixels, columns, k;
    int64_t blocks, parts, k_blocks; /* of channels; of columns for each of those; of k */
    int failed;
} gradient_t;

static void fill_column_offsets(const gradient_t *job) {
    const samerun_shape *s = job->s;
    int64_t *to = job->offset;
    for (int64_t channel = 0; channel < job->in; channel++)
        for (int64_t d = 0; d < s->taps[0]; d++)
            for (int64_t h = 0; h < s->taps[1]; h++)
                for (int64_t w = 0; w < s->taps[2]; w++)
                    *to++ = channel * job->area + d * s->dilation[0] * job->plane + h * s->dilation[1] * job->line +
                            w * s->dilation[2];
}

/* The lines of a block of k, from its first image on; how many. The gradient of the block goes to `turned`. */
static int64_t lines_of_block(const gradient_t *job, int64_t k, int64_t end, int64_t channel, int64_t channels,
                              int64_t width, float *turned, samerun_direct_line *line) {
    const samerun_shape *s = job->s;
    const int64_t all = s->groups * job->out, wide = s->out[2], first = k / job->pixels;
    int64_t lines = 0;
    for (int64_t stop; k < end; k = stop) {
        const int64_t image = k / job->pixels, from = k % job->pixels;
        stop = least(end, (image + 1) * job->pixels);
        samerun_direct_turn(turned, width, job->gradient + (image * all + channel) * job->pixels + from, job->pixels,
                            channels, stop - k, NULL);
        turned += (stop - k) * width;
        for (int64_t p = from, left = stop - k, some; left; p += some, left -= some) {
            const int64_t w = p % wide, h = p / wide % s->out[1], d = p / wide / s->out[1];
            some = least(wide - w, left);
            line[lines++] = (samerun_direct_line){(image - first) * s->groups * job->in * job->area +
                                                      d * s->stride[0] * job->plane + h * s->stride[1] * job->line +
                                                      w * s->stride[2],
                                                  some};
        }
    }
    return lines;
}

/* Some columns of a block of channels, over some blocks of k. `kept`: whether each of these has sums of its own. */
static void sum_columns(const gradient_t *job, int64_t number, int64_t column, int64_t column_end, int64_t block,
                        int64_t block_end, int kept, float *turned, samerun_direct_line *line) {
    const int64_t group = number / job->blocks, channel = number % job->blocks * WIDTH;
    const int vectors = samerun_direct_vectors(job->out, number % job->blocks);
    const int64_t width = vectors * LANES, channels = least(width, job->out - channel);
    const int64_t tiles = pieces_of(column_end - column, COLUMNS);
    if (channels < width) memset(turned, 0, (size_t)(SAMERUN_BLOCK * width) * sizeof *turned);
    samerun_direct_columns columns_args = {.gradient = turned, .line = line, .step = job->s->stride[2]};
    for (; block < block_end; block++) {
        const int64_t k = block * SAMERUN_BLOCK, end = least(k + SAMERUN_BLOCK, job->k);
        float *sums = job->sums + ((kept ? block : 0) * job->s->groups * job->blocks + number) * job->columns * WIDTH;
        columns_args.lines = lines_of_block(job, k, end, group * job->out + channel, channels, width, turned, line);
        columns_args.image = job->image + (k / job->pixels * job->s->groups + group) * job->in * job->area;
        columns_args.more = !kept && block;
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t first = column + (column_end - column) * tile / tiles;
            const int64_t last = column + (column_end - column) * (tile + 1) / tiles;
            columns_args.offset = job->offset + first, columns_args.sums = sums + first * width;
            samerun_direct_gradient_tile(&columns_args, (int)(last - first), vectors);
        }
    }
}

/* The sums of a block of channels: those of all blocks of k are added, and turned into the result. */
static void put_sums_range(void *args, int64_t begin, int64_t end) {
    gradient_t *job = args;
    const int64_t step = job->s->groups * job->blocks * job->columns * WIDTH;
    for (int64_t number = begin / job->parts; begin < end; begin++, number = begin / job->parts) {
        const int64_t group = number / job->blocks, channel = number % job->blocks * WIDTH, part = begin % job->parts;
        const int64_t column = job->columns * part / job->parts, column_end = job->columns * (part + 1) / job->parts;
        const int64_t width = samerun_direct_vectors(job->out, number % job->blocks) * LANES;
        const int64_t channels = least(width, job->out - channel);
        float *sums = job->sums + number * job->columns * WIDTH + column * width;
        for (int64_t block = 1; block < job->k_blocks; block++)
            for (int64_t i = 0; i < (column_end - column) * width; i++) sums[i] += sums[block * step + i];
        samerun_direct_turn(job->result + (group * job->out + channel) * job->columns + column, job->columns, sums,
                            width, column_end - column, channels, NULL);
    }
}

typedef struct {
    float turned[SAMERUN_BLOCK * WIDTH];
    samerun_direct_line line[SAMERUN_BLOCK];
} block_t;

static void columns_range(void *args, int64_t begin, int64_t end) {
    gradient_t *job = args;
    block_t *block = samerun_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    for (int64_t item = begin; block && item < end; item++) {
        const int64_t number = item / job->parts, part = item % job->parts;
        sum_columns(job, number, job->columns * part / job->parts, job->columns * (part + 1) / job->parts, 0,
                    job->k_blocks, 0, block->turned, block->line);
    }
    if (block) samerun_scratch_done(SCRATCH_PANELS, block);
}

static void k_blocks_range(void *args, int64_t begin, int64_t end) {
    gradient_t *job = args;
    block_t *block = samerun_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    for (int64_t number = 0; block && number < job->s->groups * job->blocks; number++)
        sum_columns(job, number, 0, job->columns, begin, end, 1, block->turned, block->line);
    if (block) samerun_scratch_done(SCRATCH_PANELS, block);
}

/* The product is as fast or faster where columns need no packing, lanes would be idle, or packing pays. */
int samerun_direct_gradient_suits(const samerun_shape *s) {
    if (samerun_level() != LEVEL_AVX512 || !s->groups || samerun_volume(s->taps) == 1) return 0;
    const int64_t out = s->outputs / s->groups, in = s->inputs / s->groups;
    if (!out || !in || !s->images || !samerun_volume(s->out)) return 0;
    return out * 8 >= pieces_of(out, LANES) * LANES * 7 && (out <= FEW_ROWS || in <= FEW_CHANNELS);
}

samerun_status samerun_direct_gradient(const samerun_shape *s, const int64_t *size, const float *image,
                                       const float *gradient, float *result) {
    gradient_t job = {.s = s, .image = image, .gradient = gradient, .result = result};
    job.in = s->inputs / s->groups, job.out = s->outputs / s->groups, job.pixels = samerun_volume(s->out);
    job.line = size[2], job.plane = size[1] * size[2], job.area = samerun_volume(size);
    job.columns = job.in * samerun_volume(s->taps), job.k = s->images * job.pixels;
    job.blocks = pieces_of(job.out, WIDTH), job.k_blocks = pieces_of(job.k, SAMERUN_BLOCK);
    const int64_t numbers = s->groups * job.blocks * job.columns * WIDTH, threads = samerun_threads_here();
    const int kept = threads > 1 && numbers <= KEPT / job.k_blocks && job.k_blocks >= 2 * threads;
    job.offset = malloc((size_t)(job.columns + 1) * sizeof *job.offset);
    job.sums = samerun_scratch(SCRATCH_PHASE, (size_t)(numbers * (kept ? job.k_blocks : 1)) * sizeof *job.sums);
    job.failed = !job.offset || !job.sums;
    if (!job.failed) {
        fill_column_offsets(&job);
        job.parts = 1;
        if (kept) {
            samerun_parallel(job.k_blocks, 1 + WORTH_A_THREAD / (SAMERUN_BLOCK * numbers), k_blocks_range, &job);
        } else {
            if (threads > 1)
                job.parts = least(pieces_of(2 * threads, s->groups * job.blocks), pieces_of(job.columns, COLUMNS));
            samerun_parallel(s->groups * job.blocks * job.parts,
                             1 + WORTH_A_THREAD * job.parts / (job.k * job.columns * WIDTH), columns_range, &job);
            job.k_blocks = 1; /* have been added */
        }
        if (!job.failed)
            samerun_parallel(s->groups * job.blocks * job.parts, 1 + 65536 / numbers, put_sums_range, &job);
    }
    if (job.sums) samerun_scratch_done(SCRATCH_PHASE, job.sums);
    free(job.offset);
    return job.failed ? SAMERUN_NO_MEMORY : SAMERUN_DONE;
}

#endif
