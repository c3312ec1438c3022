/* Convolutions in one to three dimensions, forward and both gradients, as products of matrices.
 *
 * The image is copied once into one with its padding (and, for a gradient of the input that phases.c does not take, with
 * zeros between the values of a strided gradient). In that copy every tap of every output lies at a fixed distance, so
 * the unfolded image is two tables of offsets and is never written out. Where outputs are a stride apart, what one tap
 * meets of a line lies side by side in the copy.
 */
#include <stdlib.h>
#include <string.h>

#include "convolution.h"
#include "multiply.h"
#include "scratch.h"

enum { FORWARD, GRADIENT_OF_INPUT, GRADIENT_OF_WEIGHT };

/* outer * volume of `inner` entries: outer * outer_stride + each position of `inner` times its steps, in an image of
 * `size` whose lines are taken `apart` (samerun_place). */
static int grid_apart(samerun_axis *axis, int64_t outer, int64_t outer_stride, const int64_t *inner,
                      const int64_t *step, const int64_t *size, int64_t start, int64_t apart) {
    if (!samerun_axis_new(axis, outer * samerun_volume(inner))) return 0;
    int64_t *to = axis->offset;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t d = 0; d < inner[0]; d++)
            for (int64_t h = 0; h < inner[1]; h++)
                for (int64_t w = 0; w < inner[2]; w++)
                    *to++ = start + o * outer_stride + ((d * step[0]) * size[1] + h * step[1]) * size[2] +
                            samerun_place(w * step[2], size[2], apart);
    samerun_axis_runs(axis);
    return 1;
}

static int grid(samerun_axis *axis, int64_t outer, int64_t outer_stride, const int64_t *inner, const int64_t *step,
                const int64_t *size, int64_t start) {
    return grid_apart(axis, outer, outer_stride, inner, step, size, start, 1);
}

static const int64_t one[3] = {1, 1, 1};

static int forward(const samerun_shape *s, samerun_multiplication *it, const int64_t *size, int64_t apart) {
    int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, taps = samerun_volume(s->taps);
    int64_t pixels = samerun_volume(s->out), area = samerun_volume(size);
    it->m = out;
    it->k = in * taps;
    it->n = s->images * pixels;
    it->c_row = pixels;
    return samerun_steps(&it->a_batch, s->groups, out * in * taps) && samerun_steps(&it->b_batch, s->groups, in * area) &&
           samerun_steps(&it->c_batch, s->groups, out * pixels) &&
           grid(&it->a_rows, out, in * taps, one, one, one, 0) && grid(&it->a_k, in * taps, 1, one, one, one, 0) &&
           grid_apart(&it->b_k, in, area, s->taps, s->dilation, size, 0, apart) &&
           grid_apart(&it->b_columns, s->images, s->inputs * area, s->out, s->stride, size, 0, apart) &&
           grid(&it->c_columns, s->images, s->outputs * pixels, s->out, one, s->out, 0);
}

/* `reordered`: the weight is samerun_weight_by_inputs. */
static int gradient_of_input(const samerun_shape *s, samerun_multiplication *it, const int64_t *size,
                             const int64_t *start, int reordered) {
    int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, taps = samerun_volume(s->taps);
    int64_t pixels = samerun_volume(s->in), area = samerun_volume(size), back[3];
    for (int i = 0; i < 3; i++) back[i] = -s->dilation[i];
    it->m = in;
    it->k = out * taps;
    it->n = s->images * pixels;
    it->c_row = pixels;
    return samerun_steps(&it->a_batch, s->groups, out * in * taps) && samerun_steps(&it->b_batch, s->groups, out * area) &&
           samerun_steps(&it->c_batch, s->groups, in * pixels) &&
           grid(&it->a_rows, in, reordered ? out * taps : taps, one, one, one, 0) &&
           grid(&it->a_k, out, reordered ? taps : in * taps, s->taps, one, s->taps, 0) &&
           grid(&it->b_k, out, area, s->taps, back, size, 0) &&
           grid(&it->b_columns, s->images, s->outputs * area, s->in, one, size,
                (start[0] * size[1] + start[1]) * size[2] + start[2]) &&
           grid(&it->c_columns, s->images, s->inputs * pixels, s->in, one, s->in, 0);
}

static int gradient_of_weight(const samerun_shape *s, samerun_multiplication *it, const int64_t *size, int64_t apart) {
    int64_t in = s->inputs / s->groups, out = s->outputs / s->groups, taps = samerun_volume(s->taps);
    int64_t pixels = samerun_volume(s->out), area = samerun_volume(size);
    it->m = out;
    it->k = s->images * pixels;
    it->n = in * taps;
    it->c_row = in * taps;
    return samerun_steps(&it->a_batch, s->groups, out * pixels) && samerun_steps(&it->b_batch, s->groups, in * area) &&
           samerun_steps(&it->c_batch, s->groups, out * in * taps) && grid(&it->a_rows, out, pixels, one, one, one, 0) &&
           grid(&it->a_k, s->images, s->outputs * pixels, s->out, one, s->out, 0) &&
           grid_apart(&it->b_k, s->images, s->inputs * area, s->out, s->stride, size, 0, apart) &&
           grid_apart(&it->b_columns, in, area, s->taps, s->dilation, size, 0, apart) &&
           grid(&it->c_columns, in * taps, 1, one, one, one, 0);
}

/* 0; -1 without memory; 1 if the bits might not be those of the product with all taps, as `some` may be left out. */
static int convolve(int what, int is_double, const samerun_shape *s, const void *image, const void *weight,
                    const void *gradient, const void *bias, void *result, int some) {
    const size_t real = is_double ? 8 : 4;
    int64_t size[3], start[3], left[3];
    samerun_multiplication it = {.batches = s->groups, .c = result, .bias = bias};
    samerun_borders borders = {0};
    int own, made;
    const int turned = what == GRADIENT_OF_INPUT;
    for (int i = 0; i < 3; i++) {
        int64_t reach = (s->taps[i] - 1) * s->dilation[i];
        /* Gradient of the input i: tap t of output o where o * stride == i + padding - t * dilation. */
        left[i] = turned ? (reach > s->padding[i] ? reach - s->padding[i] : 0) : s->padding[i];
        start[i] = s->padding[i] + left[i];
        size[i] = turned ? s->in[i] - 1 + start[i] + 1 : (s->out[i] - 1) * s->stride[i] + reach + 1;
        if (!turned && size[i] < s->in[i] + left[i]) size[i] = s->in[i] + left[i];
    }
    const int64_t apart = !turned && s->taps[2] > 1 ? s->stride[2] : 1; /* one tap needs a part of the image only */
    size[2] = (size[2] + apart - 1) / apart * apart;
    char *copy = turned ? samerun_spread(gradient, s->images * s->outputs, s->out, size, s->stride, left, 1, real, &own)
                        : samerun_spread(image, s->images * s->inputs, s->in, size, one, left, apart, real, &own);
    if (own && copy == NULL) return -1;
    const void *wide = own ? copy : turned ? gradient : image;
    it.b = wide;
    it.b_slack = own;
    const int reordered = turned && samerun_volume(s->taps) > 1; /* by a single tap packing goes as fast */
    void *by_inputs = reordered ? samerun_weight_by_inputs(weight, s, real) : NULL;
    it.a = reordered ? by_inputs : what == GRADIENT_OF_WEIGHT ? gradient : weight;
    it.bias_batch = turned ? s->inputs / s->groups : s->outputs / s->groups;
    it.bias_row = 1;
    made = what == FORWARD             ? forward(s, &it, size, apart)
           : what == GRADIENT_OF_INPUT ? gradient_of_input(s, &it, size, start, reordered)
                                       : gradient_of_weight(s, &it, size, apart);
    made = made && (!reordered || by_inputs != NULL);
    const int left_out = made && some ? samerun_leave_out_borders(s, turned, is_double, weight, &it, &borders) : 0;
    int answer = samerun_multiply_and_free(&it, is_double, made && left_out >= 0);
    if (left_out == 1 && !samerun_put_back(s, turned, result, &borders) && answer == 0) answer = 1;
    if (by_inputs != NULL) samerun_scratch_done(SCRATCH_WEIGHT, by_inputs);
    if (own) samerun_scratch_done(SCRATCH_IMAGE, copy);
    return answer;
}

/* numbers: images, groups, input and output channels, then three each of input size, output size, taps, stride,
 * padding, dilation. Tensors are contiguous: `image` [n, c, d, h, w] (the input; its gradient's source is
 * `gradient` [n, c', d', h', w']), `weight` [c', c / groups, taps].
 *   what 0: result [n, c', d', h', w'] from image, weight, bias (or NULL)
 *   what 1: result [n, c, d, h, w] from gradient, weight, bias (or NULL; transposed convolutions have one)
 *   what 2: result [c', c / groups, taps] from gradient, image
 * Returns 0, or -1 without memory. */
int samerun_convolution(int what, int is_double, const int64_t *numbers, const void *image, const void *weight,
                        const void *gradient, const void *bias, void *result) {
    samerun_shape s;
    memcpy(&s, numbers, sizeof s);
    if (what == GRADIENT_OF_INPUT) {
        const int answer = samerun_gradient_by_phases(&s, is_double, weight, gradient, bias, result);
        if (answer) return answer < 0 ? -1 : 0;
    }
    const int answer = convolve(what, is_double, &s, image, weight, gradient, bias, result, what != GRADIENT_OF_WEIGHT);
    return answer == 1 ? convolve(what, is_double, &s, image, weight, gradient, bias, result, 0) : answer;
}
