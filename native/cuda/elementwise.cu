/* Class R over arrays, and the activations made of it: each line of a formula is one rounding (elementwise_kernels.inc
 * has the same lines for the CPU). */
#include "common.h"
#include "../functions/float_functions.h"
#include "../functions/binary_functions.h"

#define MAP(name) \
    KERNEL map_##name(const float *x, float *y, int64_t n) { EACH(i, n) y[i] = name##_float(x[i]); }
ALL_FUNCTIONS(MAP)

#define PAIR_MAP(name)                                                         \
    KERNEL map_##name(const float *x, const float *y, float *out, int64_t n) { \
        EACH(i, n) out[i] = name##_float(x[i], y[i]);                          \
    }
PAIR_MAP(pow)
PAIR_MAP(atan2)
PAIR_MAP(hypot)

KERNEL square_roots32(const float *x, float *out, int64_t n) { EACH(i, n) out[i] = __builtin_sqrtf(x[i]); }

KERNEL square_roots64(const double *x, double *out, int64_t n) { EACH(i, n) out[i] = __builtin_sqrt(x[i]); }

#define ROOT_OF_HALF 0.70710678118654752f
#define DENSITY 0.39894228040143268f /* 1 / sqrt(2 pi) */
#define ROOT_OF_TWO_OVER_PI 0.79788456080286536f
#define CUBIC 0.044715f

DEVICE float gelu(float x, float unused_grad) {
    (void)unused_grad;
    const float t = erf_float(x * ROOT_OF_HALF);
    return (0.5f * x) * (1 + t);
}

DEVICE float gelu_backward(float x, float grad) {
    const float t = erf_float(x * ROOT_OF_HALF), u = exp_float((x * x) * -0.5f);
    const float below = 0.5f * (1 + t), density = u * DENSITY;
    return grad * (below + x * density);
}

DEVICE float tanh_of_gelu_cubic(float x) {
    const float cube = (x * x) * x, inner = x + CUBIC * cube;
    return tanh_float(ROOT_OF_TWO_OVER_PI * inner);
}

DEVICE float gelu_tanh(float x, float unused_grad) {
    (void)unused_grad;
    return (0.5f * x) * (1 + tanh_of_gelu_cubic(x));
}

DEVICE float gelu_tanh_backward(float x, float grad) {
    const float t = tanh_of_gelu_cubic(x);
    const float left = 0.5f * (1 + t), slope = 1 - t * t;
    const float inside = ROOT_OF_TWO_OVER_PI * (1 + (3 * CUBIC) * (x * x));
    const float right = ((0.5f * x) * slope) * inside;
    return grad * (left + right);
}

DEVICE float silu(float x, float unused_grad) {
    (void)unused_grad;
    return x * sigmoid_float(x);
}

DEVICE float silu_backward(float x, float grad) {
    const float t = sigmoid_float(x), inner = 1 + x * (1 - t);
    return grad * (t * inner);
}

#define ACTIVATION(name)                                                                 \
    KERNEL activation_##name(const float *x, const float *grad, float *out, int64_t n) { \
        EACH(i, n) out[i] = name(x[i], grad ? grad[i] : 0);                              \
    }
ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(silu)
ACTIVATION(gelu_backward)
ACTIVATION(gelu_tanh_backward)
ACTIVATION(silu_backward)
