/* log, log2, log10, log1p, asinh, acosh, atanh. */
#ifndef SAMERUN_FUNCTIONS_LOGARITHM_H
#define SAMERUN_FUNCTIONS_LOGARITHM_H

#include "parts.h"

/* What a logarithm is outside of 0 < x < infinity. */
PORTABLE double odd_log(double x) { return x == 0 ? -INFINITE : x < 0 ? NO_NUMBER : x; }
PORTABLE int not_positive(float x) { return !(x > 0) | !(x < (float)INFINITE); }

#define LOGARITHM(name)                                             \
    PORTABLE int name##_is_odd(float x) { return not_positive(x); } \
    PORTABLE double name##_of(double x) { return not_positive((float)x) ? odd_log(x) : name##_core(x); }

PORTABLE double log_core(double x) {
    uint64_t biased;
    double small;
    const double m = log_reduced(x, &biased), k = whole_of(biased), large = log_sum(m - 1, &small);
    return fma64(k, LN2_0, large + fma64(k, LN2_1, small));
}
LOGARITHM(log)

PORTABLE double log2_core(double x) {
    uint64_t biased;
    double small;
    const double m = log_reduced(x, &biased), k = whole_of(biased), large = log_sum(m - 1, &small);
    return k + fma64(large, LOG2_E_0, fma64(large, LOG2_E_1, small * LOG2_E_0));
}
LOGARITHM(log2)

PORTABLE double log10_core(double x) {
    uint64_t biased;
    double small;
    const double m = log_reduced(x, &biased), k = whole_of(biased), large = log_sum(m - 1, &small);
    const double low = fma64(k, LOG10_2_1, fma64(large, LOG10_E_1, small * LOG10_E_0));
    return fma64(k, LOG10_2_0, fma64(large, LOG10_E_0, low));
}
LOGARITHM(log10)

PORTABLE int log1p_is_odd(float x) { return !(x > -1) | !(x < (float)INFINITE); }
PORTABLE double log1p_of(double x) { return x <= -1 ? odd_log(x + 1) : x < INFINITE ? log1p_core(x) : x; }

PORTABLE int asinh_is_odd(float x) { return !(__builtin_fabsf(x) < (float)INFINITE); }
PORTABLE double asinh_core(double x) {
    const double a = __builtin_fabs(x), square = a * a;
    return with_sign_of(log1p_core(a + square / (1 + __builtin_sqrt(1 + square))), x);
}
PORTABLE double asinh_of(double x) { return asinh_is_odd((float)x) ? x : asinh_core(x); }

PORTABLE int acosh_is_odd(float x) { return !(x >= 1) | !(x < (float)INFINITE); }
PORTABLE double acosh_core(double x) {
    const double t = x - 1;
    return log1p_core(t + __builtin_sqrt(t * (t + 2)));
}
PORTABLE double acosh_of(double x) { return x < 1 ? NO_NUMBER : x < INFINITE ? acosh_core(x) : x; }

PORTABLE int atanh_is_odd(float x) { return !(__builtin_fabsf(x) < 1); }
PORTABLE double atanh_core(double x) {
    const double a = __builtin_fabs(x);
    return with_sign_of(0.5 * log1p_core(2 * a / (1 - a)), x);
}
PORTABLE double atanh_of(double x) {
    const double a = __builtin_fabs(x);
    return a < 1 ? atanh_core(x) : a == 1 ? with_sign_of(INFINITE, x) : NO_NUMBER;
}

#endif
