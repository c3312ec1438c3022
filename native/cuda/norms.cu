/* Normalisations and their gradients: norm_kernels.inc and norms.c have the same formulas for the CPU. */
#include "common.h"

#define EACH_OF_ROW(j, n) for (int64_t j = threadIdx.x; j < (n); j += blockDim.x)

/* Row i of n values: value j has the weight number (i % groups * n + j) / inner. A thread block takes a row. */
KERNEL normalize_rows(int is_rms_norm, float eps, const float *x, const float *weight, const float *bias, float *out,
                      float *mean, float *rstd, int64_t n, int64_t weight_row_period, int64_t values_per_weight) {
    const int64_t row = blockIdx.x, skipped = row % weight_row_period * n;
    const float count = (float)n;
    float center = 0;
    x += row * n, out += row * n;
    if (!is_rms_norm) center = sum_row_by_thread_block(n, [&](int64_t j) { return x[j]; }) / count;
    const float squares = sum_row_by_thread_block(n, [&](int64_t j) { return (x[j] - center) * (x[j] - center); });
    const float variance = squares / count, r = 1 / __builtin_sqrtf(variance + eps);
    EACH_OF_ROW(j, n) {
        float y = (x[j] - center) * r;
        if (weight) {
            const int64_t c = (skipped + j) / values_per_weight;
            y = y * weight[c];
            if (bias) y = y + bias[c];
        }
        out[j] = y;
    }
    if (threadIdx.x == 0) mean[row] = center, rstd[row] = r;
}

/* h = g * weight, y = (x - mean) * rstd: ((h - mean of h) - y * (mean of h*y)) * rstd; rms has no mean of h.
 * `weight_grad_terms`: where the terms go that sum to the gradient of the weight, or null. */
KERNEL normalize_rows_backward(int is_rms_norm, const float *x, const float *grad_output, const float *weight,
                               const float *mean, const float *rstd, float *grad_input, float *weight_grad_terms,
                               int64_t n, int64_t weight_row_period, int64_t values_per_weight) {
    const int64_t row = blockIdx.x, skipped = row % weight_row_period * n;
    const float count = (float)n, m = mean[row], r = rstd[row];
    x += row * n, grad_output += row * n, grad_input += row * n;
    EACH_OF_ROW(j, n) {
        if (weight_grad_terms) weight_grad_terms[row * n + j] = grad_output[j] * ((x[j] - m) * r);
        grad_input[j] = weight ? grad_output[j] * weight[(skipped + j) / values_per_weight] : grad_output[j];
    }
    __syncthreads();
    const float slope = sum_row_by_thread_block(n, [&](int64_t j) { return grad_input[j] * ((x[j] - m) * r); }) / count;
    if (is_rms_norm) {
        EACH_OF_ROW(j, n) grad_input[j] = (grad_input[j] - ((x[j] - m) * r) * slope) * r;
        return;
    }
    const float center = sum_row_by_thread_block(n, [&](int64_t j) { return grad_input[j]; }) / count;
    EACH_OF_ROW(j, n) grad_input[j] = ((grad_input[j] - center) - ((x[j] - m) * r) * slope) * r;
}

/* ((x - mean) * rstd) * weight + bias of [images, channels, inner]. A weight that is not there is 1 and a bias -0.0,
 * which change nothing. */
KERNEL normalize_channels(const float *x, const float *weight, const float *bias, const float *mean, const float *rstd,
                          float *out, int64_t n, int64_t channel_count, int64_t inner) {
    EACH(i, n) {
        const int64_t c = i / inner % channel_count;
        const float w = weight ? weight[c] : 1, b = bias ? bias[c] : ABSENT32;
        out[i] = ((x[i] - mean[c]) * rstd[c]) * w + b;
    }
}

/* A warp for each block of the values of a channel: parts[(which * channels + channel) * blocks + block], the sums of
 * g, g*y, h and h*y, the last two in training only. */
KERNEL channel_gradient_sums(int training, const float *x, const float *grad_output, const float *weight,
                             const float *mean, const float *rstd, float *block_sums, int64_t images,
                             int64_t channel_count, int64_t inner, int64_t blocks) {
    const int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (warp >= channel_count * blocks) return; /* whole warps */
    const int64_t c = warp / blocks, first = warp % blocks * SUM_BLOCK,
                  n = min_int64(images * inner - first, SUM_BLOCK);
    const float w = weight ? weight[c] : 1, m = mean[c], r = rstd[c];
    float sum[4] = {ABSENT32, ABSENT32, ABSENT32, ABSENT32};
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
        const int64_t image = (first + i) / inner,
                      at = (image * channel_count + c) * inner + (first + i - image * inner);
        const float y = (x[at] - m) * r, h = grad_output[at] * w;
        sum[0] = sum[0] + grad_output[at];
        sum[1] = sum[1] + grad_output[at] * y;
        sum[2] = sum[2] + h;
        sum[3] = sum[3] + h * y;
    }
    for (int which = 0; which < (training ? 4 : 2); which++) {
        const float found = reduce_warp_to_lane_0(0, sum[which]);
        if (threadIdx.x % WARP == 0) block_sums[(which * channel_count + c) * blocks + warp % blocks] = found;
    }
}

/* The gradient of x from the sums [4, channels]: ((g*w - center) - y*slope) * rstd, or (g*w) * rstd. */
KERNEL channel_input_gradient(int training, const float *x, const float *grad_output, const float *weight,
                              const float *mean, const float *rstd, const float *sums, float *grad_input,
                              int64_t images, int64_t channel_count, int64_t inner) {
    const float count = (float)(images * inner);
    EACH(i, images * channel_count * inner) {
        const int64_t c = i / inner % channel_count;
        const float h = grad_output[i] * (weight ? weight[c] : 1), r = rstd[c];
        if (training) {
            const float center = sums[2 * channel_count + c] / count, slope = sums[3 * channel_count + c] / count;
            grad_input[i] = ((h - center) - ((x[i] - mean[c]) * r) * slope) * r;
        } else {
            grad_input[i] = h * r;
        }
    }
}
