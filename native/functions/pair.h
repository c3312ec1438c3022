/* Sums of two doubles, high + low with |low| at most half an ulp of high: about 100 bits, for the rare results
 * that a double cannot round. */
#ifndef SAMERUN_FUNCTIONS_PAIR_H
#define SAMERUN_FUNCTIONS_PAIR_H

#include "parts.h"

typedef struct {
    double high, low;
} pair_t;

#ifdef __cplusplus
#define PAIR(high, low) \
    pair_t { (double)(high), (double)(low) }
#else
#define PAIR(high, low) ((pair_t){high, low})
#endif

PORTABLE pair_t pair_of(double high, double low) {
    const double sum = high + low;
    const pair_t p = {sum, low - (sum - high)}; /* |high| >= |low| */
    return p;
}
PORTABLE pair_t pair_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    const pair_t p = {sum, (a - (sum - part)) + (b - part)};
    return p;
}
PORTABLE pair_t pair_product(double a, double b) {
    const pair_t p = {a * b, fma64(a, b, -(a * b))};
    return p;
}
PORTABLE pair_t pair_add(pair_t a, pair_t b) {
    const pair_t s = pair_sum(a.high, b.high), t = pair_sum(a.low, b.low);
    const pair_t u = pair_of(s.high, s.low + t.high);
    return pair_of(u.high, u.low + t.low);
}
PORTABLE pair_t pair_times(pair_t a, pair_t b) {
    const pair_t p = pair_product(a.high, b.high);
    return pair_of(p.high, p.low + fma64(a.high, b.low, a.low * b.high));
}
PORTABLE pair_t pair_over(pair_t a, pair_t b) {
    const double q = a.high / b.high;
    const double rest = fma64(-q, b.low, fma64(-q, b.high, a.high) + a.low);
    const double q2 = rest / b.high;
    const double rest2 = fma64(-q2, b.high, rest);
    return pair_of(q, q2 + rest2 / b.high);
}

/* The float nearest to the exact value high + low: an inexact double is made odd, which no middle of floats is. */
PORTABLE float pair_to_float(pair_t p) {
    uint64_t bits = bits64(p.high);
    if (p.low != 0 && !(bits & 1)) bits += (p.low > 0) == (p.high > 0) ? 1 : (uint64_t)-1;
    return (float)double_of(bits);
}

/* Whether an error of 2^-47 leaves no doubt about the float. */
PORTABLE int is_certain(double y) { return (float)(y * (1 - 0x1p-47)) == (float)(y * (1 + 0x1p-47)); }

#endif
