/* sin, cos, tan, asin, acos, atan. */
#ifndef SAMERUN_FUNCTIONS_TRIGONOMETRIC_H
#define SAMERUN_FUNCTIONS_TRIGONOMETRIC_H

#include "exp_log_steps.h"

/* Up to here an angle is reduced in double; beyond, with the bits of 2/pi that matter. */
#define FAR_ANGLE 0x1p17

/* x = quadrant * pi/2 + r, |r| <= pi/4. Only the low two bits of *quadrant_in_low_2_bits count. */
PORTABLE double reduce_small_angle(double x, uint64_t *quadrant_in_low_2_bits) {
    const double rounded = fma64(x, TWO_OVER_PI_0, ROUNDER), k = rounded - ROUNDER;
    *quadrant_in_low_2_bits = bits_of_double(rounded);
    return fma64(-k, HALF_PI_1, fma64(-k, HALF_PI_0, x)); /* the inner one is exact */
}

/* The same for finite |x| >= FAR_ANGLE: 128 bits of x * 2/pi, the first of weight 2. */
PORTABLE double reduce_large_angle(double x, uint64_t *quadrant_in_low_2_bits) {
    static const uint32_t words[] = TWO_OVER_PI_WORDS;
    const uint64_t bits = bits_of_double(x);
    const int exponent = (int)(bits >> 52 & 0x7FF) - 1023 - 23; /* |x| = whole * 2^exponent, -6 <= exponent */
    const uint32_t whole = (uint32_t)((bits & 0x000FFFFFFFFFFFFFU) >> 29 | 1 << 23);
    const int first = exponent - 2 + 32; /* bits before the first that counts, after 32 leading zeros */
    unsigned __int128 window = 0;
    for (int i = 0; i < 5; i++) {
        const int at = first / 32 + i;
        const uint64_t word = at == 0 ? 0 : words[at - 1];
        const int shift = 128 - 32 * (i + 1) + first % 32;
        window += shift >= 0 ? (unsigned __int128)word << shift : (unsigned __int128)(word >> -shift);
    }
    const unsigned __int128 product = window * whole; /* modulo 4 */
    uint64_t turns = (uint64_t)(product >> 126);
    unsigned __int128 rest = product << 2;
    const int above = (int)(rest >> 127); /* more than half a quadrant: count back from the next */
    turns += (uint64_t)above;
    if (above) rest = -rest;
    const double high = (double)(uint64_t)(rest >> 75) * 0x1p-53; /* both parts are exact */
    const double low = (double)((uint64_t)(rest >> 22) & ((1ULL << 53) - 1)) * 0x1p-106;
    const double f = high + low, f_low = low - (f - high);
    double r = fma64(f, HALF_PI_0, fma64(f, HALF_PI_1, f_low * HALF_PI_0));
    if (above) r = -r;
    if (bits >> 63) r = -r, turns = -turns;
    *quadrant_in_low_2_bits = turns;
    return r;
}

PORTABLE double sin_polynomial(double r) { return fma64(r * (r * r), sin_tail_polynomial(r * r), r); }
PORTABLE double cos_polynomial(double r) {
    const double z = r * r;
    return fma64(z * z, cos_tail_polynomial(z), fma64(z, -0.5, 1));
}

PORTABLE double sin_in_quadrant(double r, uint64_t quadrant) {
    const double s = sin_polynomial(r), c = cos_polynomial(r);
    return double_from_bits(bits_of_double(quadrant & 1 ? c : s) ^ (quadrant & 2) << 62);
}
PORTABLE double tan_in_quadrant(double r, uint64_t quadrant) {
    const double s = sin_polynomial(r), c = cos_polynomial(r);
    return quadrant & 1 ? -c / s : s / c;
}

/* The only zero is that of 0. */
PORTABLE double sin_of_reduced(double x, double r, uint64_t quadrant) {
    return x == 0 ? x : sin_in_quadrant(r, quadrant);
}
PORTABLE double cos_of_reduced(double x, double r, uint64_t quadrant) {
    (void)x;
    return sin_in_quadrant(r, quadrant + 1);
}
PORTABLE double tan_of_reduced(double x, double r, uint64_t quadrant) {
    return x == 0 ? x : tan_in_quadrant(r, quadrant);
}

#define OF_ANGLE(name)                                                                                   \
    PORTABLE int name##_regular_is_invalid(float x) { return !(__builtin_fabsf(x) < (float)FAR_ANGLE); } \
    PORTABLE double name##_regular(double x) {                                                           \
        uint64_t quadrant;                                                                               \
        const double r = reduce_small_angle(x, &quadrant);                                               \
        return name##_of_reduced(x, r, quadrant);                                                        \
    }                                                                                                    \
    PORTABLE double name##_of_widened_float(double x) {                                                  \
        uint64_t quadrant;                                                                               \
        if (!name##_regular_is_invalid((float)x)) return name##_regular(x);                              \
        if (!(__builtin_fabs(x) < INFINITE)) return NO_NUMBER;                                           \
        const double r = reduce_large_angle(x, &quadrant);                                               \
        return name##_of_reduced(x, r, quadrant);                                                        \
    }
OF_ANGLE(sin)
OF_ANGLE(cos)
OF_ANGLE(tan)

#define TAN_EIGHTH 0x1.a8279a0000000p-2      /* about tan(pi/8) */
#define TAN_THREE_EIGHTHS 0x1.3504f40000000p+1 /* about tan(3 pi/8) */

/* atan(y / x) for y >= 0, x >= 0, not both 0 and not both infinite. */
PORTABLE double atan_of_nonnegative_quotient(double y, double x) {
    const int middle = y > TAN_EIGHTH * x, high = y > TAN_THREE_EIGHTHS * x;
    const double top = high ? -x : middle ? y - x : y, bottom = high ? y : middle ? y + x : x;
    const double base = high ? HALF_PI_0 : middle ? QUARTER_PI_0 : 0;
    const double base_low = high ? HALF_PI_1 : middle ? QUARTER_PI_1 : 0;
    const double t = top / bottom, z = t * t;
    return base + (t + fma64(t * z, atan_tail_polynomial(z), base_low));
}

PORTABLE double atan_of_widened_float(double x) {
    return copy_sign(atan_of_nonnegative_quotient(__builtin_fabs(x), 1), x);
}

/* asin(s) for 0 <= s <= 1/2, or for s = sqrt((1 - |x|) / 2), of which asin and acos of x > 1/2 are made. */
PORTABLE double asin_reduced_to_half(double x, int *is_above_half) {
    const double a = __builtin_fabs(x);
    *is_above_half = a > 0.5;
    const double z = *is_above_half ? 0.5 * (1 - a) : a * a;
    const double s = *is_above_half ? __builtin_sqrt(z) : a;
    return fma64(s * z, asin_tail_polynomial(z), s);
}

PORTABLE double asin_of_widened_float(double x) {
    int high;
    const double p = asin_reduced_to_half(x, &high);
    return copy_sign(high ? HALF_PI_0 - fma64(2, p, -HALF_PI_1) : p, x);
}

PORTABLE double acos_of_widened_float(double x) {
    int high;
    const double p = asin_reduced_to_half(x, &high), signed_p = copy_sign(p, x);
    const double outer = x > 0 ? 2 * p : 2 * HALF_PI_0 - fma64(2, p, -2 * HALF_PI_1);
    return high ? outer : HALF_PI_0 - (signed_p - HALF_PI_1);
}

#endif
