/* Sums of two doubles, high + low with |low| at most half an ulp of high: about 100 bits, for the rare results
 * that a double cannot round. */
#ifndef SAMERUN_FUNCTIONS_DOUBLE_DOUBLE_H
#define SAMERUN_FUNCTIONS_DOUBLE_DOUBLE_H

#include "exp_log_steps.h"

typedef struct {
    double high, low;
} pair_t;

#ifdef __cplusplus
#define PAIR(high, low) \
    pair_t { (double)(high), (double)(low) }
#else
#define PAIR(high, low) ((pair_t){high, low})
#endif

PORTABLE pair_t normalize_pair(double high, double low) {
    const double sum = high + low;
    const pair_t p = {sum, low - (sum - high)}; /* |high| >= |low| */
    return p;
}
PORTABLE pair_t pair_from_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    const pair_t p = {sum, (a - (sum - part)) + (b - part)};
    return p;
}
PORTABLE pair_t pair_from_product(double a, double b) {
    const pair_t p = {a * b, fma64(a, b, -(a * b))};
    return p;
}
PORTABLE pair_t pair_add(pair_t a, pair_t b) {
    const pair_t s = pair_from_sum(a.high, b.high), t = pair_from_sum(a.low, b.low);
    const pair_t u = normalize_pair(s.high, s.low + t.high);
    return normalize_pair(u.high, u.low + t.low);
}
PORTABLE pair_t pair_multiply(pair_t a, pair_t b) {
    const pair_t p = pair_from_product(a.high, b.high);
    return normalize_pair(p.high, p.low + fma64(a.high, b.low, a.low * b.high));
}
PORTABLE pair_t pair_divide(pair_t a, pair_t b) {
    const double q = a.high / b.high;
    const double rest = fma64(-q, b.low, fma64(-q, b.high, a.high) + a.low);
    const double q2 = rest / b.high;
    const double rest2 = fma64(-q2, b.high, rest);
    return normalize_pair(q, q2 + rest2 / b.high);
}

/* The float nearest to the exact value high + low: an inexact double is made odd, which no middle of floats is. */
PORTABLE float pair_to_float(pair_t p) {
    uint64_t bits = bits_of_double(p.high);
    if (p.low != 0 && !(bits & 1)) bits += (p.low > 0) == (p.high > 0) ? 1 : (uint64_t)-1;
    return (float)double_from_bits(bits);
}

/* Whether an error of 2^-47 leaves no doubt about the float. */
PORTABLE int rounds_to_one_float(double y) { return (float)(y * (1 - 0x1p-47)) == (float)(y * (1 + 0x1p-47)); }

#endif
