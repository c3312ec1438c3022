/* What the functions of class R share: the steps of exp and log in double.
 *
 * Every function of these files takes a float widened to double and returns a double that, rounded to float, is the
 * correctly rounded result; the few inputs where it is not stand in its list of exceptions (float_functions.h).
 * NAME_of_widened_float takes every value. NAME_regular, where there is one, takes all but those that
 * NAME_regular_is_invalid names, and no branch of it depends on a value: loops over it, and over NAME_of_widened_float
 * where there is no core, become vector code.
 */
#ifndef SAMERUN_FUNCTIONS_EXP_LOG_STEPS_H
#define SAMERUN_FUNCTIONS_EXP_LOG_STEPS_H

#include "../portable.h"
#include "coefficients.h"

#define INFINITE __builtin_inf()
#define NO_NUMBER __builtin_nan("")

/* Adding this rounds to a whole number and leaves it in the low bits. */
#define ROUNDER 0x1.8p52

/* A NaN passes. */
PORTABLE double min_keeping_nan(double bound, double x) { return x > bound ? bound : x; }

/* 2^k for the whole number k that x + ROUNDER holds. */
PORTABLE double power_of_two_from_rounded(double integer_plus_rounder) {
    return double_from_bits((bits_of_double(integer_plus_rounder) + 1023) << 52);
}

/* x = k ln(2) + r, |r| <= ln(2)/2. Returns r; *integer_plus_rounder is k + ROUNDER. */
PORTABLE double reduce_exp_argument(double x, double *integer_plus_rounder) {
    *integer_plus_rounder = fma64(x, LOG2_E_0, ROUNDER);
    const double k = *integer_plus_rounder - ROUNDER;
    return fma64(-k, LN2_1, fma64(-k, LN2_0, x));
}

/* e^x, |x| < 700. */
PORTABLE double exp_unclamped(double x) {
    double rounded;
    const double r = reduce_exp_argument(x, &rounded);
    const double y = fma64(r * r, exp_tail_polynomial(r), r) + 1;
    return double_from_bits(bits_of_double(y) + (bits_of_double(rounded) << 52));
}

/* e^x - 1, |x| < 700; relative to the result, so that tiny x are right. The sign of x. */
PORTABLE double expm1_unclamped(double x) {
    double rounded;
    const double r = reduce_exp_argument(x, &rounded);
    const double p = fma64(r * r, exp_tail_polynomial(r), r), scale = power_of_two_from_rounded(rounded);
    return copy_sign(fma64(scale, p, scale - 1), x);
}

#define ROOT_HALF 0x3FE6A09E00000000U /* about sqrt(1/2); significands lie between it and twice it */

/* x = 2^k m for normal x > 0. Returns m; *biased is k + 1023. */
PORTABLE double split_significand_around_one(double x, uint64_t *biased_exponent) {
    const uint64_t shifted = bits_of_double(x) + (0x3FF0000000000000U - ROOT_HALF);
    *biased_exponent = shifted >> 52;
    return double_from_bits((shifted & 0x000FFFFFFFFFFFFFU) + ROOT_HALF);
}

PORTABLE double exponent_from_biased(uint64_t biased_exponent) {
    return double_from_bits(0x4330000000000000U | biased_exponent) - (0x1p52 + 1023);
}

/* log(1 + f) without its last addition: 2s + *small with s = f / (2 + f). */
PORTABLE double log1p_in_two_parts(double f, double *small) {
    const double s = f / (2 + f), z = s * s;
    *small = s * z * log_tail_polynomial(z);
    return 2 * s;
}

/* log(1 + a) for -1 < a < infinity, relative to the result, so that tiny a are right. */
PORTABLE double log1p_regular(double a) {
    const double u = 1 + a;
    const double lost = a > 1 ? 1 - (u - a) : a - (u - 1); /* u + lost == 1 + a */
    uint64_t biased_exponent;
    const double m = split_significand_around_one(u, &biased_exponent), k = exponent_from_biased(biased_exponent);
    const double scale = double_from_bits((2046 - biased_exponent) << 52);
    double small;
    const double f = k == 0 ? a : fma64(lost, scale, m - 1);
    const double large = log1p_in_two_parts(f, &small);
    const double y = fma64(k, LN2_0, large + fma64(k, LN2_1, small));
    return k == 0 ? copy_sign(large + small, a) : y;
}

#endif
