/* exp, exp2, expm1, sinh, cosh, tanh, sigmoid. */
#ifndef SAMERUN_FUNCTIONS_EXPONENTIAL_H
#define SAMERUN_FUNCTIONS_EXPONENTIAL_H

#include "exp_log_steps.h"

/* Beyond these bounds the float is 0, 1 or infinity all the same. One bound is kept before, one after: compilers
 * make a long chain of two beside each other. */
PORTABLE double exp_of_widened_float(double x) {
    const double y = exp_unclamped(min_keeping_nan(89, x));
    return x < -104 ? 0 : y;
}

PORTABLE double exp2_of_widened_float(double x) {
    const double top = min_keeping_nan(129, x), rounded = top + ROUNDER, r = top - (rounded - ROUNDER);
    const double y =
        double_from_bits(bits_of_double(fma64(r, exp2m1_over_z_polynomial(r), 1)) + (bits_of_double(rounded) << 52));
    return x < -151 ? 0 : y;
}

PORTABLE double expm1_of_widened_float(double x) {
    const double y = expm1_unclamped(min_keeping_nan(89, x));
    return x < -40 ? -1 : y;
}

PORTABLE double sinh_of_widened_float(double x) {
    const double p = expm1_unclamped(min_keeping_nan(90, __builtin_fabs(x)));
    return copy_sign(0.5 * (p + p / (p + 1)), x);
}

PORTABLE double cosh_of_widened_float(double x) {
    const double e = exp_unclamped(min_keeping_nan(90, __builtin_fabs(x)));
    return 0.5 * e + 0.5 / e;
}

PORTABLE double tanh_of_widened_float(double x) {
    const double p = expm1_unclamped(min_keeping_nan(24, 2 * __builtin_fabs(x)));
    return copy_sign(p / (p + 2), x);
}

PORTABLE double sigmoid_regular(double x) {
    const double y = 1 / (1 + exp_unclamped(min_keeping_nan(105, -x)));
    return x > 40 ? 1 : y;
}
/* Near 0 the sigmoid is 1/2 + x/4 - x^3/48 ...: often just below (or above) the middle of two floats, by less than
 * a double shows. There 1/2 + x/4 is exact, and a step towards 1/2 puts the result on the right side. */
PORTABLE int sigmoid_regular_is_invalid(float x) { return (__builtin_fabsf(x) < 0x1p-12f) & (x != 0); }
PORTABLE double sigmoid_of_widened_float(double x) {
    return sigmoid_regular_is_invalid((float)x) ? fma64(x, 0.25, 0.5) - copy_sign(0x1p-53, x) : sigmoid_regular(x);
}

#endif
