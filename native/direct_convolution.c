/* Convolutions of single precision read directly from the image, forward and the gradient of the input.
 *
 * A line of the result is cut into tiles of neighbours that meet the same taps at neighbouring values (with strides,
 * the gradient of the input has as many kinds of neighbours). Taps beyond the border are left out; strided_input_gradient.c says when that
 * changes no bit. The sums of some lines by some channels are kept side by side, and turned into the result at last.
 */
#include "direct_convolution.h"

#if defined(__x86_64__)

#include <stdlib.h>
#include <string.h>

#include "level.h"
#include "thread_pool.h"
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
    const samerun_shape *shape;
    int backward, odd; /* odd: a result is -0.0, or a weight not finite */
    const float *image, *weight, *bias;
    float *result, *packed;
    const int64_t *from, *to; /* sizes of the image and of the result */
    int64_t step, out_step;      /* of neighbours in the image, in the result */
    int64_t in, out;          /* channels of the image and of the result, of a group */
    int64_t area, pixels, taps, k;
    tile_t *tiles;
    int64_t *first_tile; /* of each line, and behind the last */
    samerun_direct_tap *met;
    int64_t lines, blocks, bands;
    int failed;
} direct_job_t;

/* Where tap t of position o of the result lies in dimension `dim` of the image: at *at. 0: between its values. */
static int tap_image_position(const direct_job_t *job, int dim, int64_t o, int64_t t, int64_t *at) {
    const samerun_shape *shape = job->shape;
    if (!job->backward) {
        *at = o * shape->stride[dim] - shape->padding[dim] + t * shape->dilation[dim];
        return 1;
    }
    const int64_t reach = o + shape->padding[dim] - t * shape->dilation[dim];
    *at = reach / shape->stride[dim];
    return reach % shape->stride[dim] == 0;
}

static int tap_is_inside_image(const direct_job_t *job, int dim, int64_t o, int64_t t, int64_t *at) {
    return tap_image_position(job, dim, o, t, at) && *at >= 0 && *at < job->from[dim];
}

static int32_t classify_pixel_range(int from, int to, int pixels) {
    const int first = from, last = pixels - to;
    if (!first && !last) return SAMERUN_ALL;
    if (!last && first <= SAMERUN_EDGE) return SAMERUN_ALL_BUT_FIRST + first - 1;
    return !first && last <= SAMERUN_EDGE ? SAMERUN_ALL_BUT_LAST + last - 1 : SAMERUN_SOME;
}

/* The taps that a tile from position o of its line on meets. */
static int list_tile_taps(const direct_job_t *job, const int64_t *o, int pixels, samerun_direct_tap *met) {
    const samerun_shape *shape = job->shape;
    int count = 0;
    int64_t z, y, x;
    for (int64_t d = 0; d < shape->taps[0]; d++)
        for (int64_t h = 0; h < shape->taps[1]; h++)
            for (int64_t w = 0; w < shape->taps[2]; w++) {
                if (!tap_is_inside_image(job, 0, o[0], d, &z) || !tap_is_inside_image(job, 1, o[1], h, &y)) continue;
                if (!tap_image_position(job, 2, o[2], w, &x)) continue;
                int from = 0, to = pixels;
                while (from < to && x + from * job->step < 0) from++;
                while (to > from && x + (to - 1) * job->step >= job->from[2]) to--;
                if (from == to) continue;
                samerun_direct_tap *tap = met + count++;
                tap->image = (z * job->from[1] + y) * job->from[2] + x;
                tap->number = (int32_t)((d * shape->taps[1] + h) * shape->taps[2] + w);
                tap->from = from, tap->to = to, tap->met_by = classify_pixel_range(from, to, pixels);
            }
    return count;
}

/* Each tile of each line. Taps are kept from the tile's place on, so that a line often has those of the line before. */
static void list_tiles(direct_job_t *job) {
    samerun_direct_tap *free_taps = job->met;
    int64_t n = 0, before = 0;
    for (int64_t line = 0; line < job->lines; line++) {
        job->first_tile[line] = n;
        for (int64_t phase = 0; phase < min_int64(job->out_step, job->to[2]); phase++) {
            const int64_t all = ceil_divide(job->to[2] - phase, job->out_step), tiles = ceil_divide(all, PIXELS);
            for (int64_t number = 0; number < tiles; number++, n++) {
                const int64_t first = all * number / tiles, last = all * (number + 1) / tiles;
                const int64_t o[3] = {line / job->to[1], line % job->to[1], phase + first * job->out_step};
                tile_t *tile = job->tiles + n;
                tile->pixels = (int)(last - first);
                tile->to = line * job->to[2] + o[2];
                tile->count = list_tile_taps(job, o, tile->pixels, free_taps);
                tile->place = tile->count ? free_taps->image : 0;
                for (int i = 0; i < tile->count; i++) free_taps[i].image -= tile->place;
                const tile_t *like = line ? job->tiles + before + (n - job->first_tile[line]) : NULL;
                if (like && like->count == tile->count &&
                    !memcmp(like->met, free_taps, (size_t)tile->count * sizeof *free_taps)) {
                    tile->met = like->met;
                    continue;
                }
                tile->met = free_taps;
                free_taps += tile->count;
            }
        }
        before = job->first_tile[line];
    }
    job->first_tile[job->lines] = n;
}

/* Weights of a block of channels as [k, channels]. */
static void pack_weight_blocks_range(void *args, int64_t begin, int64_t end) {
    direct_job_t *job = args;
    const int64_t all = job->in * job->out * job->taps;
    for (int64_t item = begin; item < end; item++) {
        const int64_t group = item / job->blocks, block = item % job->blocks, channel = block * WIDTH;
        const int64_t width = samerun_direct_vectors_of_block(job->out, block) * LANES;
        const int64_t channels = min_int64(width, job->out - channel);
        float *to_block = job->packed + ((group * job->blocks + block) * job->k) * WIDTH;
        const float *weight = job->weight + group * all;
        if (channels < width) memset(to_block, 0, (size_t)(job->k * width) * sizeof *to_block);
        int finite = 1;
        if (job->backward)
            for (int64_t i = 0; i < job->in; i++) {
                const float *part = weight + (i * job->out + channel) * job->taps;
                samerun_transpose_plus_bias(to_block + i * job->taps * width, width, part, job->taps, channels,
                                            job->taps, NULL);
                finite &= samerun_all_finite(part, channels * job->taps, 0);
            }
        else {
            samerun_transpose_plus_bias(to_block, width, weight + channel * job->k, job->k, channels, job->k, NULL);
            finite = samerun_all_finite(weight + channel * job->k, channels * job->k, 0);
        }
        if (!finite) __atomic_store_n(&job->odd, 1, __ATOMIC_RELAXED);
    }
}

/* A band of lines of an image by a block of channels. */
static void convolve_band(direct_job_t *job, int64_t item, float *sums) {
    const int64_t images = job->shape->images, part = item % job->bands, image = item / job->bands % images;
    const int64_t number = item / job->bands / images;
    const int64_t group = number / job->blocks, block = number % job->blocks, channel = block * WIDTH;
    const int vectors = samerun_direct_vectors_of_block(job->out, block);
    const int64_t width = vectors * LANES, channels = min_int64(width, job->out - channel);
    const int64_t line = job->lines * part / job->bands, end = job->lines * (part + 1) / job->bands;
    const int64_t start = line * job->to[2], pixels = (end - line) * job->to[2];
    const float *from = job->image + (image * job->shape->groups + group) * job->in * job->area;
    const int64_t channel_of_all = group * job->out + channel;
    samerun_direct_tile_args tile_args = {.weight = job->packed + number * job->k * WIDTH,
                                          .area = job->area,
                                          .taps = job->taps,
                                          .sums_step = width * job->out_step};
    for (tile_args.k = 0; tile_args.k < job->k; tile_args.k = tile_args.end) {
        tile_args.end = min_int64(tile_args.k + SAMERUN_BLOCK, job->k);
        for (int64_t t = job->first_tile[line]; t < job->first_tile[end]; t++) {
            const tile_t *tile = job->tiles + t;
            tile_args.image = from + tile->place, tile_args.met = tile->met, tile_args.count = tile->count;
            tile_args.sums = sums + (tile->to - start) * width;
            samerun_direct_pixel_tile(&tile_args, tile->pixels, vectors, job->step);
        }
    }
    float *to = job->result + (image * job->shape->groups * job->out + channel_of_all) * job->pixels + start;
    if (samerun_transpose_plus_bias(to, job->pixels, sums, width, pixels, channels,
                                    job->bias ? job->bias + channel_of_all : NULL))
        __atomic_store_n(&job->odd, 1, __ATOMIC_RELAXED);
}

static void convolve_bands_range(void *args, int64_t begin, int64_t end) {
    direct_job_t *job = args;
    const int64_t pixels = ceil_divide(job->lines, job->bands) * job->to[2];
    float *sums = samerun_borrow_scratch(SCRATCH_PANELS, (size_t)(pixels * WIDTH) * sizeof *sums);
    if (!sums) {
        __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t item = begin; item < end; item++) convolve_band(job, item, sums);
    samerun_release_scratch(SCRATCH_PANELS, sums);
}

/* Decision 0047 has the measurements. Whether the product is not faster: where its columns need no packing, tiles have a pixel or two, many sums are short, or
 * lanes would be idle. */
static int direct_is_faster(const direct_job_t *job) {
    if (job->taps == 1 || (job->out_step > 1 && job->to[2] < 3 * job->out_step)) return 0;
    const int64_t lanes = ceil_divide(job->out, LANES) * LANES;
    const int filled =
        (double)lanes * samerun_fraction_of_taps_inside(job->shape, job->backward) <= 1.1 * (double)job->out;
    if (job->k < SHORT) return filled && lanes == LANES;
    return filled || (lanes == LANES && job->out >= LANES / 2);
}

static samerun_status run_direct_convolution(direct_job_t *job, int64_t tiles) {
    const samerun_shape *shape = job->shape;
    job->tiles = malloc((size_t)(tiles + 1) * sizeof *job->tiles);
    job->first_tile = malloc((size_t)(job->lines + 1) * sizeof *job->first_tile);
    job->met = malloc((size_t)(tiles * job->taps + 1) * sizeof *job->met);
    job->packed = samerun_borrow_scratch(SCRATCH_WEIGHT,
                                         (size_t)(shape->groups * job->blocks * WIDTH * job->k) * sizeof *job->packed);
    job->failed = !job->tiles || !job->first_tile || !job->met || !job->packed;
    if (!job->failed) {
        list_tiles(job);
        samerun_parallel_for(shape->groups * job->blocks, 1 + 65536 / (job->k * WIDTH + 1), pack_weight_blocks_range,
                             job);
        if (!job->odd) {
            const int64_t jobs = shape->groups * job->blocks * shape->images,
                          threads = samerun_count_available_threads();
            job->bands = ceil_divide(job->pixels * WIDTH * (int64_t)sizeof(float), SUMS_AT_ONCE);
            if (threads > 1 && jobs * job->bands < 4 * threads) job->bands = ceil_divide(4 * threads, jobs);
            job->bands = min_int64(job->bands, job->lines);
            const int64_t products = ceil_divide(job->pixels, job->bands) * min_int64(job->out, WIDTH) * job->k;
            samerun_parallel_for(jobs * job->bands, 1 + WORTH_A_THREAD / products, convolve_bands_range, job);
        }
    }
    if (job->packed) samerun_release_scratch(SCRATCH_WEIGHT, job->packed);
    free(job->met);
    free(job->first_tile);
    free(job->tiles);
    if (job->failed) return SAMERUN_NO_MEMORY;
    return job->odd ? SAMERUN_DECLINED : SAMERUN_DONE;
}

samerun_status samerun_direct_convolution(const samerun_shape *shape, int backward, const float *image,
                                          const float *weight, const float *bias, float *result) {
    direct_job_t job = {.shape = shape, .backward = backward, .image = image, .weight = weight, .bias = bias};
    if (samerun_level() != LEVEL_AVX512 || !shape->groups) return SAMERUN_DECLINED;
    job.result = result;
    job.from = backward ? shape->out : shape->in, job.to = backward ? shape->in : shape->out;
    job.step = backward ? 1 : shape->stride[2], job.out_step = backward ? shape->stride[2] : 1;
    job.in = (backward ? shape->outputs : shape->inputs) / shape->groups,
    job.out = (backward ? shape->inputs : shape->outputs) / shape->groups;
    job.area = samerun_volume(job.from), job.pixels = samerun_volume(job.to), job.taps = samerun_volume(shape->taps);
    job.k = job.in * job.taps;
    job.lines = job.to[0] * job.to[1], job.blocks = ceil_divide(job.out, WIDTH);
    if (!job.k || !job.out || !job.pixels || !shape->images || !direct_is_faster(&job)) return SAMERUN_DECLINED;
    const int64_t tiles = job.lines * (job.out_step + job.to[2] / PIXELS + 1);
    if (tiles > MOST_TAPS / job.taps) return SAMERUN_DECLINED;
    return run_direct_convolution(&job, tiles);
}

#endif
