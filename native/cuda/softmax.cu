/* Rows: the softmax family. A thread block takes a row; `x` and `out` may not overlap. softmax_kernels.inc has the same
 * formulas for the CPU. */
#include "common.h"
#include "../functions/float_functions.h"

#define EACH_OF_ROW(j, row_length) for (int64_t j = threadIdx.x; j < (row_length); j += blockDim.x)

/* Every thread gets it. A NaN may be passed over: the sum that follows is one all the same. */
DEVICE float row_max_nan_undefined(const float *x, int64_t row_length) {
    __shared__ float part[MOST_WARPS];
    float most = -__builtin_inff();
    EACH_OF_ROW(j, row_length) most = x[j] > most ? x[j] : most;
    for (int half = WARP / 2; half; half /= 2) {
        const float other = __shfl_down_sync(0xFFFFFFFFu, most, half);
        most = other > most ? other : most;
    }
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = most;
    __syncthreads();
    most = part[0];
    for (int w = 1; w < (int)(blockDim.x / WARP); w++) most = part[w] > most ? part[w] : most;
    __syncthreads();
    return most;
}

/* The sum of e^(x - m), whose terms go to e. */
DEVICE float exp_shifted_and_sum_row(const float *x, float shift, float *exp_out, int64_t row_length) {
    EACH_OF_ROW(j, row_length) exp_out[j] = exp_float(x[j] - shift);
    __syncthreads();
    return sum_row_by_thread_block(row_length, [&](int64_t j) { return exp_out[j]; });
}

KERNEL softmax(const float *x, const float *, float *out, int64_t row_length) {
    x += blockIdx.x * row_length, out += blockIdx.x * row_length;
    const float sum = exp_shifted_and_sum_row(x, row_max_nan_undefined(x, row_length), out, row_length);
    EACH_OF_ROW(j, row_length) out[j] = out[j] / sum;
}

KERNEL log_softmax(const float *x, const float *, float *out, int64_t row_length) {
    x += blockIdx.x * row_length, out += blockIdx.x * row_length;
    const float m = row_max_nan_undefined(x, row_length),
                sum = log_float(exp_shifted_and_sum_row(x, m, out, row_length));
    EACH_OF_ROW(j, row_length) out[j] = (x[j] - m) - sum;
}

KERNEL logsumexp(const float *x, const float *, float *out, int64_t row_length) {
    x += blockIdx.x * row_length;
    float m = row_max_nan_undefined(x, row_length);
    if (m == __builtin_inff() || m == -__builtin_inff()) m = 0;
    const float sum = sum_row_by_thread_block(row_length, [&](int64_t j) { return exp_float(x[j] - m); });
    if (threadIdx.x == 0) out[blockIdx.x] = m + log_float(sum);
}

/* output: of softmax. */
KERNEL softmax_backward(const float *output, const float *grad_output, float *grad_input, int64_t row_length) {
    output += blockIdx.x * row_length, grad_output += blockIdx.x * row_length, grad_input += blockIdx.x * row_length;
    const float sum = sum_row_by_thread_block(row_length, [&](int64_t j) { return grad_output[j] * output[j]; });
    EACH_OF_ROW(j, row_length) grad_input[j] = (grad_output[j] - sum) * output[j];
}

/* output: of log_softmax. */
KERNEL log_softmax_backward(const float *output, const float *grad_output, float *grad_input, int64_t row_length) {
    output += blockIdx.x * row_length, grad_output += blockIdx.x * row_length, grad_input += blockIdx.x * row_length;
    const float sum = sum_row_by_thread_block(row_length, [&](int64_t j) { return grad_output[j]; });
    EACH_OF_ROW(j, row_length) grad_input[j] = grad_output[j] - exp_float(output[j]) * sum;
}
