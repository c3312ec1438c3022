/* Convolutions of single precision read directly from the image, forward and the gradient of the input.
 *
 * A line of the result is cut into tiles of neighbours that meet the same taps at neighbouring values (with strides,
 * the gradient of the input has as many kinds of neighbours). Taps beyond the border are left out; phases.c says when that
 * changes no bit. The sums of some lines by some channels are kept side by side, and turned into the result at last.
 */
#include "direct.h"

#if defined(__x86_64__)

#include <stdlib.h>
#include <string.h>

#include "level.h"
#include "pool.h"
#include "scratch.h"

enum { LANES = SAMERUN_DIRECT_LANES, VECTORS = SAMERUN_DIRECT_VECTORS, WIDTH = LANES * VECTORS };
enum { PIXELS = SAMERUN_DIRECT_PIXELS };
enum {
    SUMS_AT_ONCE = 48 << 10,  /* bytes of sums that stay in the second cache beside a block of weights */
    MOST_TAPS = 1 << 18,      /* in the tables of all tiles */
    WORTH_A_THREAD = 1 << 19, /* products */
    SHORT = 32                /* products of a sum */
};

typedef struct {
    int64_t place, to; /* in a channel of the image and of the result */
    const samerun_direct_tap *met;
    int count, pixels;
} tile_t;

typedef struct {
    const samerun_shape *s;
    int turned, odd; /* odd: a result is -0.0, or a weight not finite */
    const float *image, *weight, *bias;
    float *result, *packed;
    const int64_t *from, *to; /* sizes of the image and of the result */
    int64_t step, apart;      /* of neighbours in the image, in the result */
    int64_t in, out;          /* channels of the image and of the result, of a group */
    int64_t area, pixels, taps, k;
    tile_t *tiles;
    int64_t *first_tile; /* of each line, and behind the last */
    samerun_direct_tap *met;
    int64_t lines, blocks, bands;
    int failed;
} direct_t;

/* Where tap t of position o of the result lies in dimension `dim` of the image: at *at. 0: between its values. */
static int met_at(const direct_t *it, int dim, int64_t o, int64_t t, int64_t *at) {
    const samerun_shape *s = it->s;
    if (!it->turned) {
        *at = o * s->stride[dim] - s->padding[dim] + t * s->dilation[dim];
        return 1;
    }
    const int64_t reach = o + s->padding[dim] - t * s->dilation[dim];
    *at = reach / s->stride[dim];
    return reach % s->stride[dim] == 0;
}

static int inside(const direct_t *it, int dim, int64_t o, int64_t t, int64_t *at) {
    return met_at(it, dim, o, t, at) && *at >= 0 && *at < it->from[dim];
}

static int32_t met_by(int from, int to, int pixels) {
    const int first = from, last = pixels - to;
    if (!first && !last) return SAMERUN_ALL;
    if (!last && first <= SAMERUN_EDGE) return SAMERUN_ALL_BUT_FIRST + first - 1;
    return !first && last <= SAMERUN_EDGE ? SAMERUN_ALL_BUT_LAST + last - 1 : SAMERUN_SOME;
}

/* The taps that a tile from position o of its line on meets. */
static int taps_of_tile(const direct_t *it, const int64_t *o, int pixels, samerun_direct_tap *met) {
    const samerun_shape *s = it->s;
    int count = 0;
    int64_t z, y, x;
    for (int64_t d = 0; d < s->taps[0]; d++)
        for (int64_t h = 0; h < s->taps[1]; h++)
            for (int64_t w = 0; w < s->taps[2]; w++) {
                if (!inside(it, 0, o[0], d, &z) || !inside(it, 1, o[1], h, &y) || !met_at(it, 2, o[2], w, &x)) continue;
                int from = 0, to = pixels;
                while (from < to && x + from * it->step < 0) from++;
                while (to > from && x + (to - 1) * it->step >= it->from[2]) to--;
                if (from == to) continue;
                samerun_direct_tap *tap = met + count++;
                tap->image = (z * it->from[1] + y) * it->from[2] + x;
                tap->number = (int32_t)((d * s->taps[1] + h) * s->taps[2] + w);
                tap->from = from, tap->to = to, tap->met_by = met_by(from, to, pixels);
            }
    return count;
}

/* Each tile of each line. Taps are kept from the tile's place on, so that a line often has those of the line before. */
static void tiles_of_lines(direct_t *it) {
    samerun_direct_tap *free_taps = it->met;
    int64_t n = 0, before = 0;
    for (int64_t line = 0; line < it->lines; line++) {
        it->first_tile[line] = n;
        for (int64_t phase = 0; phase < least(it->apart, it->to[2]); phase++) {
            const int64_t all = pieces_of(it->to[2] - phase, it->apart), tiles = pieces_of(all, PIXELS);
            for (int64_t number = 0; number < tiles; number++, n++) {
                const int64_t first = all * number / tiles, last = all * (number + 1) / tiles;
                const int64_t o[3] = {line / it->to[1], line % it->to[1], phase + first * it->apart};
                tile_t *tile = it->tiles + n;
                tile->pixels = (int)(last - first);
                tile->to = line * it->to[2] + o[2];
                tile->count = taps_of_tile(it, o, tile->pixels, free_taps);
                tile->place = tile->count ? free_taps->image : 0;
                for (int i = 0; i < tile->count; i++) free_taps[i].image -= tile->place;
                const tile_t *like = line ? it->tiles + before + (n - it->first_tile[line]) : NULL;
                if (like && like->count == tile->count &&
                    !memcmp(like->met, free_taps, (size_t)tile->count * sizeof *free_taps)) {
                    tile->met = like->met;
                    continue;
                }
                tile->met = free_taps;
                free_taps += tile->count;
            }
        }
        before = it->first_tile[line];
    }
    it->first_tile[it->lines] = n;
}

/* Weights of a block of channels as [k, channels]. */
static void pack_blocks(void *given, int64_t from, int64_t to) {
    direct_t *it = given;
    const int64_t all = it->in * it->out * it->taps;
    for (int64_t job = from; job < to; job++) {
        const int64_t group = job / it->blocks, block = job % it->blocks, channel = block * WIDTH;
        const int64_t width = samerun_direct_vectors(it->out, block) * LANES, channels = least(width, it->out - channel);
        float *to_block = it->packed + ((group * it->blocks + block) * it->k) * WIDTH;
        const float *weight = it->weight + group * all;
        if (channels < width) memset(to_block, 0, (size_t)(it->k * width) * sizeof *to_block);
        int finite = 1;
        if (it->turned)
            for (int64_t i = 0; i < it->in; i++) {
                const float *part = weight + (i * it->out + channel) * it->taps;
                samerun_direct_turn(to_block + i * it->taps * width, width, part, it->taps, channels, it->taps, NULL);
                finite &= samerun_all_finite(part, channels * it->taps, 0);
            }
        else {
            samerun_direct_turn(to_block, width, weight + channel * it->k, it->k, channels, it->k, NULL);
            finite = samerun_all_finite(weight + channel * it->k, channels * it->k, 0);
        }
        if (!finite) __atomic_store_n(&it->odd, 1, __ATOMIC_RELAXED);
    }
}

/* A band of lines of an image by a block of channels. */
static void band(direct_t *it, int64_t job, float *sums) {
    const int64_t images = it->s->images, part = job % it->bands, image = job / it->bands % images;
    const int64_t number = job / it->bands / images;
    const int64_t group = number / it->blocks, block = number % it->blocks, channel = block * WIDTH;
    const int vectors = samerun_direct_vectors(it->out, block);
    const int64_t width = vectors * LANES, channels = least(width, it->out - channel);
    const int64_t line = it->lines * part / it->bands, end = it->lines * (part + 1) / it->bands;
    const int64_t start = line * it->to[2], pixels = (end - line) * it->to[2];
    const float *from = it->image + (image * it->s->groups + group) * it->in * it->area;
    const int64_t channel_of_all = group * it->out + channel;
    samerun_direct_block one = {.weight = it->packed + number * it->k * WIDTH,
                                .area = it->area,
                                .taps = it->taps,
                                .sums_step = width * it->apart};
    for (one.k = 0; one.k < it->k; one.k = one.end) {
        one.end = least(one.k + SAMERUN_BLOCK, it->k);
        for (int64_t t = it->first_tile[line]; t < it->first_tile[end]; t++) {
            const tile_t *tile = it->tiles + t;
            one.image = from + tile->place, one.met = tile->met, one.count = tile->count;
            one.sums = sums + (tile->to - start) * width;
            samerun_direct_tile(&one, tile->pixels, vectors, it->step);
        }
    }
    float *to = it->result + (image * it->s->groups * it->out + channel_of_all) * it->pixels + start;
    if (samerun_direct_turn(to, it->pixels, sums, width, pixels, channels, it->bias ? it->bias + channel_of_all : NULL))
        __atomic_store_n(&it->odd, 1, __ATOMIC_RELAXED);
}

static void some_bands(void *given, int64_t from, int64_t to) {
    direct_t *it = given;
    const int64_t pixels = pieces_of(it->lines, it->bands) * it->to[2];
    float *sums = samerun_scratch(SCRATCH_PANELS, (size_t)(pixels * WIDTH) * sizeof *sums);
    if (!sums) {
        __atomic_store_n(&it->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t job = from; job < to; job++) band(it, job, sums);
    samerun_scratch_done(SCRATCH_PANELS, sums);
}

/* Whether the product is not faster: where its columns need no packing, tiles have a pixel or two, many sums are short, or
 * lanes would be idle. */
static int suits(const direct_t *it) {
    if (it->taps == 1 || (it->apart > 1 && it->to[2] < 3 * it->apart)) return 0;
    const int64_t lanes = pieces_of(it->out, LANES) * LANES;
    const int filled = (double)lanes * samerun_part_met(it->s, it->turned) <= 1.1 * (double)it->out;
    if (it->k < SHORT) return filled && lanes == LANES;
    return filled || (lanes == LANES && it->out >= LANES / 2);
}

static int run(direct_t *it, int64_t tiles) {
    const samerun_shape *s = it->s;
    it->tiles = malloc((size_t)(tiles + 1) * sizeof *it->tiles);
    it->first_tile = malloc((size_t)(it->lines + 1) * sizeof *it->first_tile);
    it->met = malloc((size_t)(tiles * it->taps + 1) * sizeof *it->met);
    it->packed = samerun_scratch(SCRATCH_WEIGHT, (size_t)(s->groups * it->blocks * WIDTH * it->k) * sizeof *it->packed);
    it->failed = !it->tiles || !it->first_tile || !it->met || !it->packed;
    if (!it->failed) {
        tiles_of_lines(it);
        samerun_parallel(s->groups * it->blocks, 1 + 65536 / (it->k * WIDTH + 1), pack_blocks, it);
        if (!it->odd) {
            const int64_t jobs = s->groups * it->blocks * s->images, threads = samerun_threads_here();
            it->bands = pieces_of(it->pixels * WIDTH * (int64_t)sizeof(float), SUMS_AT_ONCE);
            if (threads > 1 && jobs * it->bands < 4 * threads) it->bands = pieces_of(4 * threads, jobs);
            it->bands = least(it->bands, it->lines);
            const int64_t products = pieces_of(it->pixels, it->bands) * least(it->out, WIDTH) * it->k;
            samerun_parallel(jobs * it->bands, 1 + WORTH_A_THREAD / products, some_bands, it);
        }
    }
    if (it->packed) samerun_scratch_done(SCRATCH_WEIGHT, it->packed);
    free(it->met);
    free(it->first_tile);
    free(it->tiles);
    return it->failed ? -1 : !it->odd;
}

int samerun_direct_convolution(const samerun_shape *s, int turned, const float *image, const float *weight,
                               const float *bias, float *result) {
    direct_t it = {.s = s, .turned = turned, .image = image, .weight = weight, .bias = bias};
    if (samerun_level() != LEVEL_AVX512 || !s->groups) return 0;
    it.result = result;
    it.from = turned ? s->out : s->in, it.to = turned ? s->in : s->out;
    it.step = turned ? 1 : s->stride[2], it.apart = turned ? s->stride[2] : 1;
    it.in = (turned ? s->outputs : s->inputs) / s->groups, it.out = (turned ? s->inputs : s->outputs) / s->groups;
    it.area = samerun_volume(it.from), it.pixels = samerun_volume(it.to), it.taps = samerun_volume(s->taps);
    it.k = it.in * it.taps;
    it.lines = it.to[0] * it.to[1], it.blocks = pieces_of(it.out, WIDTH);
    if (!it.k || !it.out || !it.pixels || !s->images || !suits(&it)) return 0;
    const int64_t tiles = it.lines * (it.apart + it.to[2] / PIXELS + 1);
    if (tiles > MOST_TAPS / it.taps) return 0;
    return run(&it, tiles);
}

#endif
