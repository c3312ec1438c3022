/* erf, erfc, rsqrt, reciprocal, cbrt. */
#ifndef SAMERUN_FUNCTIONS_ERF_AND_ROOTS_H
#define SAMERUN_FUNCTIONS_ERF_AND_ROOTS_H

#include "exp_log_steps.h"

#define ROOT_OF_HALF 0.70710678118654752f /* gelu is made of erf(x sqrt(1/2)) */

/* erf(a) for 0 <= a; from 3.93 on it is 1 as a float. */
PORTABLE double erf_nonnegative(double a) {
    a = min_keeping_nan(3.93, a);
    return a * erf_over_x_polynomial(fma64(a, a, -7.75));
}

PORTABLE double erf_of_widened_float(double x) { return copy_sign(erf_nonnegative(__builtin_fabs(x)), x); }

PORTABLE double erfc_of_widened_float(double x) {
    const double a = min_keeping_nan(10.2, __builtin_fabs(x)); /* a * a is exact */
    const double low = 1 - copy_sign(erf_nonnegative(a), x);
    const double high = exp_unclamped(-a * a) * scaled_erfc_polynomial((a - 3) / (a + 3));
    return x > 0.5 ? high : low;
}

PORTABLE double rsqrt_of_widened_float(double x) { return 1 / __builtin_sqrt(x); }

PORTABLE double reciprocal_of_widened_float(double x) { return 1 / x; }

PORTABLE double cbrt_of_widened_float(double x) {
    const double a = __builtin_fabs(x);
    /* A third of the exponent and what follows it: within 6 %. Then y (y^3 + 2a) / (2y^3 + a), three times. */
    double y = double_from_bits((uint64_t)((uint32_t)(bits_of_double(a) >> 32) / 3 + 0x2A9F7893U) << 32);
    for (int turn = 0; turn < 3; turn++) {
        const double cube = y * y * y;
        y = y * (cube + 2 * a) / (2 * cube + a);
    }
    return x == 0 || !(a < INFINITE) ? x : copy_sign(y, x);
}

#endif
