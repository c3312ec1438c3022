/* Convolutions of single precision read directly from the image, forward and the gradient of the input.
 *
 * A line of the result is cut into tiles of neighbours that meet the same taps at neighbouring values (with strides,
 * the gradient of the input has as many kinds of neighbours). Taps beyond the border are left out;
 * strided_input_gradient.c says when that changes no bit. The sums of some lines by some channels are kept side by
 * side, and turned into the result at last.
 */
#include "direct_convolution.h"

#if defined(__x86_64__)

#include <stdlib.h>
#include <string.h>

#include "simd_level.h"
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
    int64_t image_offset, result_offset; /* in a channel of the image and of the result */
    const samerun_direct_tap *taps;
    int count, pixels;
} tile_t;

typedef struct {
    const samerun_convolution_shape *shape;
    int is_input_gradient, must_decline; /* must_decline: a result is -0.0, or a weight not finite */
    const float *image, *weight, *bias;
    float *result, *packed;
    const int64_t *from, *to; /* sizes of the image and of the result */
    int64_t step, out_step;      /* of neighbours in the image, in the result */
    int64_t in, out;          /* channels of the image and of the result, of a group */
    int64_t area, pixels, taps, k;
    tile_t *tiles;
    int64_t *first_tile; /* of each line, and behind the last */
    samerun_direct_tap *tile_taps;
    int64_t lines, blocks, bands;
    int failed;
} direct_job_t;

/* Where tap t of position o of the result lies in dimension `dim` of the image: at *at. 0: between its values. */
static int find_tap_position_unless_between_values(const direct_job_t *job, int dim, int64_t result_position,
                                                   int64_t tap, int64_t *image_position) {
    const samerun_convolution_shape *shape = job->shape;
    if (!job->is_input_gradient) {
        *image_position = result_position * shape->stride[dim] - shape->padding[dim] + tap * shape->dilation[dim];
        return 1;
    }
    const int64_t reach = result_position + shape->padding[dim] - tap * shape->dilation[dim];
    *image_position = reach / shape->stride[dim];
    return reach % shape->stride[dim] == 0;
}

static int find_tap_if_inside_image(const direct_job_t *job, int dim, int64_t result_position, int64_t tap,
                                    int64_t *image_position) {
    return find_tap_position_unless_between_values(job, dim, result_position, tap, image_position) &&
           *image_position >= 0 && *image_position < job->from[dim];
}

static int32_t classify_tap_pixel_coverage(int pixel_begin, int pixel_end, int tile_pixels) {
    const int left_out_before = pixel_begin, left_out_behind = tile_pixels - pixel_end;
    if (!left_out_before && !left_out_behind) return SAMERUN_ALL;
    if (!left_out_behind && left_out_before <= SAMERUN_EDGE) return SAMERUN_ALL_BUT_FIRST + left_out_before - 1;
    return !left_out_before && left_out_behind <= SAMERUN_EDGE ? SAMERUN_ALL_BUT_LAST + left_out_behind - 1
                                                               : SAMERUN_SOME;
}

/* The taps that a tile from position o of its line on meets. */
static int list_taps_of_tile(const direct_job_t *job, const int64_t *result_position, int tile_pixels,
                             samerun_direct_tap *taps) {
    const samerun_convolution_shape *shape = job->shape;
    int count = 0;
    int64_t z, y, x;
    for (int64_t d = 0; d < shape->taps[0]; d++)
        for (int64_t h = 0; h < shape->taps[1]; h++)
            for (int64_t w = 0; w < shape->taps[2]; w++) {
                if (!find_tap_if_inside_image(job, 0, result_position[0], d, &z) ||
                    !find_tap_if_inside_image(job, 1, result_position[1], h, &y))
                    continue;
                if (!find_tap_position_unless_between_values(job, 2, result_position[2], w, &x)) continue;
                int from = 0, to = tile_pixels;
                while (from < to && x + from * job->step < 0) from++;
                while (to > from && x + (to - 1) * job->step >= job->from[2]) to--;
                if (from == to) continue;
                samerun_direct_tap *tap = taps + count++;
                tap->image_offset = (z * job->from[1] + y) * job->from[2] + x;
                tap->tap_number = (int32_t)((d * shape->taps[1] + h) * shape->taps[2] + w);
                tap->from = from, tap->to = to,
                tap->pixel_coverage = classify_tap_pixel_coverage(from, to, tile_pixels);
            }
    return count;
}

/* Each tile of each line. Taps are kept from the tile's place on, so that a line often has those of the line before. */
static void plan_pixel_tiles(direct_job_t *job) {
    samerun_direct_tap *free_taps = job->tile_taps;
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
                tile->result_offset = line * job->to[2] + o[2];
                tile->count = list_taps_of_tile(job, o, tile->pixels, free_taps);
                tile->image_offset = tile->count ? free_taps->image_offset : 0;
                for (int i = 0; i < tile->count; i++) free_taps[i].image_offset -= tile->image_offset;
                const tile_t *like = line ? job->tiles + before + (n - job->first_tile[line]) : NULL;
                if (like && like->count == tile->count &&
                    !memcmp(like->taps, free_taps, (size_t)tile->count * sizeof *free_taps)) {
                    tile->taps = like->taps;
                    continue;
                }
                tile->taps = free_taps;
                free_taps += tile->count;
            }
        }
        before = job->first_tile[line];
    }
    job->first_tile[job->lines] = n;
}

/* Weights of a block of channels as [k, channels]. */
static void pack_and_check_weight_blocks_range(void *direct_job, int64_t block_begin, int64_t block_end) {
    direct_job_t *job = direct_job;
    const int64_t all = job->in * job->out * job->taps;
    for (int64_t item = block_begin; item < block_end; item++) {
        const int64_t group = item / job->blocks, block = item % job->blocks, channel = block * WIDTH;
        const int64_t width = samerun_direct_vectors_in_channel_block(job->out, block) * LANES;
        const int64_t channels = min_int64(width, job->out - channel);
        float *to_block = job->packed + ((group * job->blocks + block) * job->k) * WIDTH;
        const float *weight = job->weight + group * all;
        if (channels < width) memset(to_block, 0, (size_t)(job->k * width) * sizeof *to_block);
        int finite = 1;
        if (job->is_input_gradient)
            for (int64_t i = 0; i < job->in; i++) {
                const float *part = weight + (i * job->out + channel) * job->taps;
                samerun_transpose_and_find_negative_zero(to_block + i * job->taps * width, width, part, job->taps, channels,
                                                    job->taps, NULL);
                finite &= samerun_all_finite(part, channels * job->taps, 0);
            }
        else {
            samerun_transpose_and_find_negative_zero(to_block, width, weight + channel * job->k, job->k, channels, job->k,
                                                NULL);
            finite = samerun_all_finite(weight + channel * job->k, channels * job->k, 0);
        }
        if (!finite) __atomic_store_n(&job->must_decline, 1, __ATOMIC_RELAXED);
    }
}

/* A band of lines of an image by a block of channels. */
static void convolve_band(direct_job_t *job, int64_t work_item, float *sums) {
    const int64_t images = job->shape->images, part = work_item % job->bands, image = work_item / job->bands % images;
    const int64_t number = work_item / job->bands / images;
    const int64_t group = number / job->blocks, block = number % job->blocks, channel = block * WIDTH;
    const int vectors = samerun_direct_vectors_in_channel_block(job->out, block);
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
            tile_args.image = from + tile->image_offset, tile_args.taps_of_tile = tile->taps,
            tile_args.count = tile->count;
            tile_args.sums = sums + (tile->result_offset - start) * width;
            samerun_accumulate_direct_pixel_tile(&tile_args, tile->pixels, vectors, job->step);
        }
    }
    float *to = job->result + (image * job->shape->groups * job->out + channel_of_all) * job->pixels + start;
    if (samerun_transpose_and_find_negative_zero(to, job->pixels, sums, width, pixels, channels,
                                            job->bias ? job->bias + channel_of_all : NULL))
        __atomic_store_n(&job->must_decline, 1, __ATOMIC_RELAXED);
}

static void convolve_bands_range(void *direct_job, int64_t item_begin, int64_t item_end) {
    direct_job_t *job = direct_job;
    const int64_t pixels = ceil_divide(job->lines, job->bands) * job->to[2];
    float *sums = samerun_borrow_scratch(SCRATCH_PANELS, (size_t)(pixels * WIDTH) * sizeof *sums);
    if (!sums) {
        __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t item = item_begin; item < item_end; item++) convolve_band(job, item, sums);
    samerun_release_scratch(SCRATCH_PANELS, sums);
}

/* Decision 0047 has the measurements. Whether the product is not faster: where its columns need no packing, tiles
 * have a pixel or two, many sums are short, or lanes would be idle. */
static int direct_convolution_is_faster(const direct_job_t *job) {
    if (job->taps == 1 || (job->out_step > 1 && job->to[2] < 3 * job->out_step)) return 0;
    const int64_t lanes = ceil_divide(job->out, LANES) * LANES;
    const int filled = (double)lanes * samerun_estimate_taps_inside_fraction(job->shape, job->is_input_gradient) <=
                       1.1 * (double)job->out;
    if (job->k < SHORT) return filled && lanes == LANES;
    return filled || (lanes == LANES && job->out >= LANES / 2);
}

static samerun_status run_direct_convolution(direct_job_t *job, int64_t most_tiles) {
    const samerun_convolution_shape *shape = job->shape;
    job->tiles = malloc((size_t)(most_tiles + 1) * sizeof *job->tiles);
    job->first_tile = malloc((size_t)(job->lines + 1) * sizeof *job->first_tile);
    job->tile_taps = malloc((size_t)(most_tiles * job->taps + 1) * sizeof *job->tile_taps);
    job->packed = samerun_borrow_scratch(SCRATCH_WEIGHT,
                                         (size_t)(shape->groups * job->blocks * WIDTH * job->k) * sizeof *job->packed);
    job->failed = !job->tiles || !job->first_tile || !job->tile_taps || !job->packed;
    if (!job->failed) {
        plan_pixel_tiles(job);
        samerun_parallel_for(shape->groups * job->blocks, 1 + 65536 / (job->k * WIDTH + 1),
                             pack_and_check_weight_blocks_range, job);
        if (!job->must_decline) {
            const int64_t jobs = shape->groups * job->blocks * shape->images,
                          threads = samerun_get_num_threads_for_new_job();
            job->bands = ceil_divide(job->pixels * WIDTH * (int64_t)sizeof(float), SUMS_AT_ONCE);
            if (threads > 1 && jobs * job->bands < 4 * threads) job->bands = ceil_divide(4 * threads, jobs);
            job->bands = min_int64(job->bands, job->lines);
            const int64_t products = ceil_divide(job->pixels, job->bands) * min_int64(job->out, WIDTH) * job->k;
            samerun_parallel_for(jobs * job->bands, 1 + WORTH_A_THREAD / products, convolve_bands_range, job);
        }
    }
    if (job->packed) samerun_release_scratch(SCRATCH_WEIGHT, job->packed);
    free(job->tile_taps);
    free(job->first_tile);
    free(job->tiles);
    if (job->failed) return SAMERUN_NO_MEMORY;
    return job->must_decline ? SAMERUN_DECLINED : SAMERUN_DONE;
}

samerun_status samerun_try_direct_convolution(const samerun_convolution_shape *shape, int is_input_gradient,
                                              const float *image, const float *weight, const float *bias_or_null,
                                              float *result) {
    direct_job_t job = {
        .shape = shape, .is_input_gradient = is_input_gradient, .image = image, .weight = weight, .bias = bias_or_null};
    if (samerun_current_simd_level() != LEVEL_AVX512 || !shape->groups) return SAMERUN_DECLINED;
    job.result = result;
    job.from = is_input_gradient ? shape->out : shape->in, job.to = is_input_gradient ? shape->in : shape->out;
    job.step = is_input_gradient ? 1 : shape->stride[2], job.out_step = is_input_gradient ? shape->stride[2] : 1;
    job.in = (is_input_gradient ? shape->outputs : shape->inputs) / shape->groups,
    job.out = (is_input_gradient ? shape->inputs : shape->outputs) / shape->groups;
    job.area = samerun_volume(job.from), job.pixels = samerun_volume(job.to), job.taps = samerun_volume(shape->taps);
    job.k = job.in * job.taps;
    job.lines = job.to[0] * job.to[1], job.blocks = ceil_divide(job.out, WIDTH);
    if (!job.k || !job.out || !job.pixels || !shape->images || !direct_convolution_is_faster(&job))
        return SAMERUN_DECLINED;
    const int64_t tiles = job.lines * (job.out_step + job.to[2] / PIXELS + 1);
    if (tiles > MOST_TAPS / job.taps) return SAMERUN_DECLINED;
    return run_direct_convolution(&job, tiles);
}

#endif
