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

static void offsets_of_columns(const gradient_t *it) {
    const samerun_shape *s = it->s;
    int64_t *to = it->offset;
    for (int64_t channel = 0; channel < it->in; channel++)
        for (int64_t d = 0; d < s->taps[0]; d++)
            for (int64_t h = 0; h < s->taps[1]; h++)
                for (int64_t w = 0; w < s->taps[2]; w++)
                    *to++ = channel * it->area + d * s->dilation[0] * it->plane + h * s->dilation[1] * it->line +
                            w * s->dilation[2];
}

/* The lines of a block of k, from its first image on; how many. The gradient of the block goes to `turned`. */
static int64_t lines_of_block(const gradient_t *it, int64_t k, int64_t end, int64_t channel, int64_t channels, int64_t width,
                              float *turned, samerun_direct_line *line) {
    const samerun_shape *s = it->s;
    const int64_t all = s->groups * it->out, wide = s->out[2], first = k / it->pixels;
    int64_t lines = 0;
    for (int64_t stop; k < end; k = stop) {
        const int64_t image = k / it->pixels, from = k % it->pixels;
        stop = least(end, (image + 1) * it->pixels);
        samerun_direct_turn(turned, width, it->gradient + (image * all + channel) * it->pixels + from, it->pixels, channels,
                            stop - k, NULL);
        turned += (stop - k) * width;
        for (int64_t p = from, left = stop - k, some; left; p += some, left -= some) {
            const int64_t w = p % wide, h = p / wide % s->out[1], d = p / wide / s->out[1];
            some = least(wide - w, left);
            line[lines++] = (samerun_direct_line){(image - first) * s->groups * it->in * it->area +
                                                      d * s->stride[0] * it->plane + h * s->stride[1] * it->line +
                                                      w * s->stride[2],
                                                  some};
        }
    }
    return lines;
}

/* Some columns of a block of channels, over some blocks of k. `kept`: whether each of these has sums of its own. */
static void some_sums(const gradient_t *it, int64_t number, int64_t column, int64_t column_end, int64_t block,
                      int64_t block_end, int kept, float *turned, samerun_direct_line *line) {
    const int64_t group = number / it->blocks, channel = number % it->blocks * WIDTH;
    const int vectors = samerun_direct_vectors(it->out, number % it->blocks);
    const int64_t width = vectors * LANES, channels = least(width, it->out - channel);
    const int64_t tiles = pieces_of(column_end - column, COLUMNS);
    if (channels < width) memset(turned, 0, (size_t)(SAMERUN_BLOCK * width) * sizeof *turned);
    samerun_direct_columns one = {.gradient = turned, .line = line, .step = it->s->stride[2]};
    for (; block < block_end; block++) {
        const int64_t k = block * SAMERUN_BLOCK, end = least(k + SAMERUN_BLOCK, it->k);
        float *sums = it->sums + ((kept ? block : 0) * it->s->groups * it->blocks + number) * it->columns * WIDTH;
        one.lines = lines_of_block(it, k, end, group * it->out + channel, channels, width, turned, line);
        one.image = it->image + (k / it->pixels * it->s->groups + group) * it->in * it->area;
        one.more = !kept && block;
        for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t first = column + (column_end - column) * tile / tiles;
            const int64_t last = column + (column_end - column) * (tile + 1) / tiles;
            one.offset = it->offset + first, one.sums = sums + first * width;
            samerun_direct_gradient_tile(&one, (int)(last - first), vectors);
        }
    }
}

/* The sums of a block of channels: those of all blocks of k are added, and turned into the result. */
static void put_sums(void *given, int64_t from, int64_t to) {
    gradient_t *it = given;
    const int64_t step = it->s->groups * it->blocks * it->columns * WIDTH;
    for (int64_t number = from / it->parts; from < to; from++, number = from / it->parts) {
        const int64_t group = number / it->blocks, channel = number % it->blocks * WIDTH, part = from % it->parts;
        const int64_t column = it->columns * part / it->parts, end = it->columns * (part + 1) / it->parts;
        const int64_t width = samerun_direct_vectors(it->out, number % it->blocks) * LANES;
        const int64_t channels = least(width, it->out - channel);
        float *sums = it->sums + number * it->columns * WIDTH + column * width;
        for (int64_t block = 1; block < it->k_blocks; block++)
            for (int64_t i = 0; i < (end - column) * width; i++) sums[i] += sums[block * step + i];
        samerun_direct_turn(it->result + (group * it->out + channel) * it->columns + column, it->columns, sums, width,
                            end - column, channels, NULL);
    }
}

typedef struct {
    float turned[SAMERUN_BLOCK * WIDTH];
    samerun_direct_line line[SAMERUN_BLOCK];
} block_t;

static void some_columns(void *given, int64_t from, int64_t to) {
    gradient_t *it = given;
    block_t *block = samerun_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&it->failed, 1, __ATOMIC_RELAXED);
    for (int64_t job = from; block && job < to; job++) {
        const int64_t number = job / it->parts, part = job % it->parts;
        some_sums(it, number, it->columns * part / it->parts, it->columns * (part + 1) / it->parts, 0, it->k_blocks, 0,
                  block->turned, block->line);
    }
    if (block) samerun_scratch_done(SCRATCH_PANELS, block);
}

static void some_blocks(void *given, int64_t from, int64_t to) {
    gradient_t *it = given;
    block_t *block = samerun_scratch(SCRATCH_PANELS, sizeof *block);
    if (!block) __atomic_store_n(&it->failed, 1, __ATOMIC_RELAXED);
    for (int64_t number = 0; block && number < it->s->groups * it->blocks; number++)
        some_sums(it, number, 0, it->columns, from, to, 1, block->turned, block->line);
    if (block) samerun_scratch_done(SCRATCH_PANELS, block);
}

/* The product is as fast or faster where columns need no packing, lanes would be idle, or packing pays. */
int samerun_direct_gradient_suits(const samerun_shape *s) {
    if (samerun_level() != LEVEL_AVX512 || !s->groups || samerun_volume(s->taps) == 1) return 0;
    const int64_t out = s->outputs / s->groups, in = s->inputs / s->groups;
    if (!out || !in || !s->images || !samerun_volume(s->out)) return 0;
    return out * 8 >= pieces_of(out, LANES) * LANES * 7 && (out <= FEW_ROWS || in <= FEW_CHANNELS);
}

int samerun_direct_gradient(const samerun_shape *s, const int64_t *size, const float *image, const float *gradient,
                            float *result) {
    gradient_t it = {.s = s, .image = image, .gradient = gradient, .result = result};
    it.in = s->inputs / s->groups, it.out = s->outputs / s->groups, it.pixels = samerun_volume(s->out);
    it.line = size[2], it.plane = size[1] * size[2], it.area = samerun_volume(size);
    it.columns = it.in * samerun_volume(s->taps), it.k = s->images * it.pixels;
    it.blocks = pieces_of(it.out, WIDTH), it.k_blocks = pieces_of(it.k, SAMERUN_BLOCK);
    const int64_t numbers = s->groups * it.blocks * it.columns * WIDTH, threads = samerun_threads_here();
    const int kept = threads > 1 && numbers <= KEPT / it.k_blocks && it.k_blocks >= 2 * threads;
    it.offset = malloc((size_t)(it.columns + 1) * sizeof *it.offset);
    it.sums = samerun_scratch(SCRATCH_PHASE, (size_t)(numbers * (kept ? it.k_blocks : 1)) * sizeof *it.sums);
    it.failed = !it.offset || !it.sums;
    if (!it.failed) {
        offsets_of_columns(&it);
        it.parts = 1;
        if (kept) {
            samerun_parallel(it.k_blocks, 1 + WORTH_A_THREAD / (SAMERUN_BLOCK * numbers), some_blocks, &it);
        } else {
            if (threads > 1) it.parts = least(pieces_of(2 * threads, s->groups * it.blocks), pieces_of(it.columns, COLUMNS));
            samerun_parallel(s->groups * it.blocks * it.parts, 1 + WORTH_A_THREAD * it.parts / (it.k * it.columns * WIDTH),
                             some_columns, &it);
            it.k_blocks = 1; /* have been added */
        }
        if (!it.failed) samerun_parallel(s->groups * it.blocks * it.parts, 1 + 65536 / numbers, put_sums, &it);
    }
    if (it.sums) samerun_scratch_done(SCRATCH_PHASE, it.sums);
    free(it.offset);
    return it.failed ? -1 : 0;
}

#endif
