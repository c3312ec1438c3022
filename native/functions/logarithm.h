/* log, log2, log10, log1p, asinh, acosh, atanh. */
#ifndef SAMERUN_FUNCTIONS_LOGARITHM_H
#define SAMERUN_FUNCTIONS_LOGARITHM_H

#include "exp_log_steps.h"

/* What a logarithm is outside of 0 < x < infinity. */
PORTABLE double log_special_case(double x) { return x == 0 ? -INFINITE : x < 0 ? NO_NUMBER : x; }
PORTABLE int is_outside_log_domain(float x) { return !(x > 0) | !(x < (float)INFINITE); }

#define LOGARITHM(name)                                                                   \
    PORTABLE int name##_regular_is_invalid(float x) { return is_outside_log_domain(x); }  \
    PORTABLE double name##_of_widened_float(double x) {                                   \
        return is_outside_log_domain((float)x) ? log_special_case(x) : name##_regular(x); \
    }

PORTABLE double log_regular(double x) {
    uint64_t biased_exponent;
    double small;
    const double m = split_significand_around_one(x, &biased_exponent), k = exponent_from_biased(biased_exponent),
                 large = log1p_in_two_parts(m - 1, &small);
    return fma64(k, LN2_0, large + fma64(k, LN2_1, small));
}
LOGARITHM(log)

PORTABLE double log2_regular(double x) {
    uint64_t biased_exponent;
    double small;
    const double m = split_significand_around_one(x, &biased_exponent), k = exponent_from_biased(biased_exponent),
                 large = log1p_in_two_parts(m - 1, &small);
    return k + fma64(large, LOG2_E_0, fma64(large, LOG2_E_1, small * LOG2_E_0));
}
LOGARITHM(log2)

PORTABLE double log10_regular(double x) {
    uint64_t biased_exponent;
    double small;
    const double m = split_significand_around_one(x, &biased_exponent), k = exponent_from_biased(biased_exponent),
                 large = log1p_in_two_parts(m - 1, &small);
    const double low = fma64(k, LOG10_2_1, fma64(large, LOG10_E_1, small * LOG10_E_0));
    return fma64(k, LOG10_2_0, fma64(large, LOG10_E_0, low));
}
LOGARITHM(log10)

PORTABLE int log1p_regular_is_invalid(float x) { return !(x > -1) | !(x < (float)INFINITE); }
PORTABLE double log1p_of_widened_float(double x) {
    return x <= -1 ? log_special_case(x + 1) : x < INFINITE ? log1p_regular(x) : x;
}

PORTABLE int asinh_regular_is_invalid(float x) { return !(__builtin_fabsf(x) < (float)INFINITE); }
PORTABLE double asinh_regular(double x) {
    const double a = __builtin_fabs(x), square = a * a;
    return copy_sign(log1p_regular(a + square / (1 + __builtin_sqrt(1 + square))), x);
}
PORTABLE double asinh_of_widened_float(double x) { return asinh_regular_is_invalid((float)x) ? x : asinh_regular(x); }

PORTABLE int acosh_regular_is_invalid(float x) { return !(x >= 1) | !(x < (float)INFINITE); }
PORTABLE double acosh_regular(double x) {
    const double t = x - 1;
    return log1p_regular(t + __builtin_sqrt(t * (t + 2)));
}
PORTABLE double acosh_of_widened_float(double x) { return x < 1 ? NO_NUMBER : x < INFINITE ? acosh_regular(x) : x; }

PORTABLE int atanh_regular_is_invalid(float x) { return !(__builtin_fabsf(x) < 1); }
PORTABLE double atanh_regular(double x) {
    const double a = __builtin_fabs(x);
    return copy_sign(0.5 * log1p_regular(2 * a / (1 - a)), x);
}
PORTABLE double atanh_of_widened_float(double x) {
    const double a = __builtin_fabs(x);
    return a < 1 ? atanh_regular(x) : a == 1 ? copy_sign(INFINITE, x) : NO_NUMBER;
}

#endif
