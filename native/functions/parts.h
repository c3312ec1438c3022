/* What the functions of class R share: the steps of exp and log in double.
 *
 * Every function of these files takes a float widened to double and returns a double that, rounded to float, is
 * the correctly rounded result; the few inputs where it is not stand in its list of exceptions (finish.h).
 * NAME_of takes every value. NAME_core, where there is one, takes all but those that NAME_is_odd names, and no
 * branch of it depends on a value: loops over it, and over NAME_of where there is no core, become vector code.
 */
#ifndef SAMERUN_FUNCTIONS_PARTS_H
#define SAMERUN_FUNCTIONS_PARTS_H

#include "../portable.h"
#include "coefficients.h"

#define INFINITE __builtin_inf()
#define NO_NUMBER __builtin_nan("")

/* Adding this rounds to a whole number and leaves it in the low bits. */
#define ROUNDER 0x1.8p52

/* A NaN passes. */
PORTABLE double at_most(double high, double x) { return x > high ? high : x; }

/* 2^k for the whole number k that x + ROUNDER holds. */
PORTABLE double power_of_two(double rounded) { return double_of((bits64(rounded) + 1023) << 52); }

/* x = k ln(2) + r, |r| <= ln(2)/2. Returns r; *rounded is k + ROUNDER. */
PORTABLE double exp_reduced(double x, double *rounded) {
    *rounded = fma64(x, LOG2_E_0, ROUNDER);
    const double k = *rounded - ROUNDER;
    return fma64(-k, LN2_1, fma64(-k, LN2_0, x));
}

/* e^x, |x| < 700. */
PORTABLE double exp_wide(double x) {
    double rounded;
    const double r = exp_reduced(x, &rounded);
    const double y = fma64(r * r, exp_rest(r), r) + 1;
    return double_of(bits64(y) + (bits64(rounded) << 52));
}

/* e^x - 1, |x| < 700; relative to the result, so that tiny x are right. The sign of x. */
PORTABLE double expm1_wide(double x) {
    double rounded;
    const double r = exp_reduced(x, &rounded);
    const double p = fma64(r * r, exp_rest(r), r), scale = power_of_two(rounded);
    return with_sign_of(fma64(scale, p, scale - 1), x);
}

#define ROOT_HALF 0x3FE6A09E00000000U /* about sqrt(1/2); significands lie between it and twice it */

/* x = 2^k m for normal x > 0. Returns m; *biased is k + 1023. */
PORTABLE double log_reduced(double x, uint64_t *biased) {
    const uint64_t shifted = bits64(x) + (0x3FF0000000000000U - ROOT_HALF);
    *biased = shifted >> 52;
    return double_of((shifted & 0x000FFFFFFFFFFFFFU) + ROOT_HALF);
}

PORTABLE double whole_of(uint64_t biased) { return double_of(0x4330000000000000U | biased) - (0x1p52 + 1023); }

/* log(1 + f) without its last addition: 2s + *small with s = f / (2 + f). */
PORTABLE double log_sum(double f, double *small) {
    const double s = f / (2 + f), z = s * s;
    *small = s * z * log_rest(z);
    return 2 * s;
}

/* log(1 + a) for -1 < a < infinity, relative to the result, so that tiny a are right. */
PORTABLE double log1p_core(double a) {
    const double u = 1 + a;
    const double lost = a > 1 ? 1 - (u - a) : a - (u - 1); /* u + lost == 1 + a */
    uint64_t biased;
    const double m = log_reduced(u, &biased), k = whole_of(biased);
    const double scale = double_of((2046 - biased) << 52);
    double small;
    const double f = k == 0 ? a : fma64(lost, scale, m - 1);
    const double large = log_sum(f, &small);
    const double y = fma64(k, LN2_0, large + fma64(k, LN2_1, small));
    return k == 0 ? with_sign_of(large + small, a) : y;
}

#endif
