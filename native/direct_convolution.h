/* Direct convolutions: what the driver and the tiles of each instruction set share.
 *
 * The lanes of a vector are channels of the result, and each pixel of a tile is a sum of its own: the image is read
 * where it lies, and a tap that a pixel does not meet is left out. For the gradient of the weight each tap is a sum.
 */
#ifndef SAMERUN_DIRECT_CONVOLUTION_H
#define SAMERUN_DIRECT_CONVOLUTION_H

#include <stdint.h>

#include "convolution_shape.h"
#include "status.h"

/* Lanes of a vector; vectors of channels and pixels in a tile, at most. */
enum { SAMERUN_DIRECT_LANES = 16, SAMERUN_DIRECT_VECTORS = 2, SAMERUN_DIRECT_PIXELS = 14 };
/* Those of block `block_number` of `channels`. */
static inline int samerun_direct_vectors_in_channel_block(int64_t channels, int64_t block_number) {
    const int64_t left = channels - block_number * SAMERUN_DIRECT_LANES * SAMERUN_DIRECT_VECTORS;
    return (int)min_int64(ceil_divide(left, SAMERUN_DIRECT_LANES), SAMERUN_DIRECT_VECTORS);
}

/* Which pixels of a tile: ALL_BUT_FIRST + n but the first n + 1, up to EDGE of them; so for LAST. */
enum { SAMERUN_EDGE = 3 };
enum {
    SAMERUN_ALL,
    SAMERUN_ALL_BUT_FIRST,
    SAMERUN_ALL_BUT_LAST = 1 + SAMERUN_EDGE,
    SAMERUN_SOME = 1 + 2 * SAMERUN_EDGE
};

/* A tap that pixels of a tile meet: those from `from` to before `to`. */
typedef struct {
    int64_t
        image_offset; /* where the value of the tile's first pixel lies (or would), from the tile's place in a channel */
    int32_t tap_number, from, to, pixel_coverage;
} samerun_direct_tap;

typedef struct {
    const float *weight, *image; /* of channel 0: [k, vectors * lanes]; at the tile's place */
    int64_t area, taps; /* values of a channel of the image; taps in all */
    int64_t k, end; /* the block; k = channel * taps + number of the tap */
    const samerun_direct_tap *taps_of_tile;
    int64_t count; /* of these */
    float *sums; /* [pixels, vectors * lanes], pixels sums_step apart: written if k is 0, else added to */
    int64_t sums_step;
} samerun_direct_tile_args;

/* One block of k for `pixels` neighbours whose values in the image are `image_step` apart. AVX-512. */
void samerun_accumulate_direct_pixel_tile(const samerun_direct_tile_args *tile_args, int pixels, int vectors,
                                          int64_t image_step);

/* Pixels side by side of a line of the result, whose values of the image are a step apart from `image_offset` on. */
typedef struct {
    int64_t image_offset, pixels;
} samerun_direct_pixel_run;

typedef struct {
    const float *gradient, *image; /* [k, vectors * lanes] of the block; what all offsets count from */
    const samerun_direct_pixel_run *line; /* of the block */
    int64_t lines, step;
    const int64_t *offset; /* of each column, which is a tap of a channel */
    float *sums; /* [columns, vectors * lanes]: written, or `accumulate` added to */
    int accumulate;
} samerun_weight_gradient_tile_args;

/* One block of k of the gradient of the weight, for up to SAMERUN_DIRECT_PIXELS columns. AVX-512. */
void samerun_accumulate_weight_gradient_tile(const samerun_weight_gradient_tile_args *tile_args, int columns,
                                             int vectors);

/* dst[j * dst_step + i] = src[i * src_step + j] (+ bias[j], unless NULL) for i < rows, j < columns. Whether one of them
 * is -0.0 before bias. AVX-512. */
int samerun_transpose_and_find_negative_zero(float *dst, int64_t dst_step, const float *src, int64_t src_step, int64_t rows,
                                        int64_t columns, const float *bias_or_null);

/* Forward, or `is_input_gradient` for the gradient of the input, from `image` (the input, or the gradient of the
 * output), in float32. Declines where another way is faster, or its bits might not be those of the product with all
 * taps. */
#if defined(__x86_64__)
samerun_status samerun_try_direct_convolution(const samerun_convolution_shape *shape, int is_input_gradient,
                                              const float *image, const float *weight, const float *bias_or_null,
                                              float *result);

/* Whether the gradient of the weight is faster read directly from the image, with its padding but not taken apart. */
int samerun_direct_weight_gradient_is_faster(const samerun_convolution_shape *shape);
/* The gradient of the weight in float32 from such an image of `padded_size`. Done, or no memory. */
samerun_status samerun_direct_weight_gradient(const samerun_convolution_shape *shape, const int64_t *padded_size,
                                              const float *padded_image, const float *gradient, float *result);
#else
static inline samerun_status samerun_try_direct_convolution(const samerun_convolution_shape *shape,
                                                            int is_input_gradient, const float *image,
                                                            const float *weight, const float *bias_or_null,
                                                            float *result) {
    (void)shape, (void)is_input_gradient, (void)image, (void)weight, (void)bias_or_null, (void)result;
    return SAMERUN_DECLINED;
}
static inline int samerun_direct_weight_gradient_is_faster(const samerun_convolution_shape *shape) {
    return (void)shape, 0;
}
static inline samerun_status samerun_direct_weight_gradient(const samerun_convolution_shape *shape,
                                                            const int64_t *padded_size, const float *padded_image,
                                                            const float *gradient, float *result) {
    (void)shape, (void)padded_size, (void)padded_image, (void)gradient, (void)result;
    return SAMERUN_DECLINED; /* not reached: it never suits */
}
#endif

#endif
