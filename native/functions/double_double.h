/* Sums of two doubles, high + low with |low| at most half an ulp of high: about 100 bits, for the rare results
 * that a double cannot round. */
#ifndef SAMERUN_FUNCTIONS_DOUBLE_DOUBLE_H
#define SAMERUN_FUNCTIONS_DOUBLE_DOUBLE_H

#include "exp_log_steps.h"

typedef struct {
    double high, low;
} double_double_t;

#ifdef __cplusplus
#define DOUBLE_DOUBLE(high, low) \
    double_double_t { (double)(high), (double)(low) }
#else
#define DOUBLE_DOUBLE(high, low) ((double_double_t){high, low})
#endif

PORTABLE double_double_t fast_two_sum(double high, double low) {
    const double sum = high + low;
    const double_double_t p = {sum, low - (sum - high)}; /* |high| >= |low| */
    return p;
}
PORTABLE double_double_t two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    const double_double_t p = {sum, (a - (sum - part)) + (b - part)};
    return p;
}
PORTABLE double_double_t two_product(double a, double b) {
    const double_double_t p = {a * b, fma64(a, b, -(a * b))};
    return p;
}
PORTABLE double_double_t double_double_add(double_double_t a, double_double_t b) {
    const double_double_t s = two_sum(a.high, b.high), t = two_sum(a.low, b.low);
    const double_double_t u = fast_two_sum(s.high, s.low + t.high);
    return fast_two_sum(u.high, u.low + t.low);
}
PORTABLE double_double_t double_double_multiply(double_double_t a, double_double_t b) {
    const double_double_t p = two_product(a.high, b.high);
    return fast_two_sum(p.high, p.low + fma64(a.high, b.low, a.low * b.high));
}
PORTABLE double_double_t double_double_divide(double_double_t a, double_double_t b) {
    const double q = a.high / b.high;
    const double rest = fma64(-q, b.low, fma64(-q, b.high, a.high) + a.low);
    const double q2 = rest / b.high;
    const double rest2 = fma64(-q2, b.high, rest);
    return fast_two_sum(q, q2 + rest2 / b.high);
}

/* The float nearest to the exact value high + low: an inexact double is made odd, which no middle of floats is. */
PORTABLE float double_double_to_float(double_double_t p) {
    uint64_t bits = bits_of_double(p.high);
    if (p.low != 0 && !(bits & 1)) bits += (p.low > 0) == (p.high > 0) ? 1 : (uint64_t)-1;
    return (float)double_from_bits(bits);
}

/* Whether an error of 2^-47 leaves no doubt about the float. */
PORTABLE int rounding_to_float_is_certain(double y) { return (float)(y * (1 - 0x1p-47)) == (float)(y * (1 + 0x1p-47)); }

#endif
