/* pow, atan2, hypot: correctly rounded functions of two floats. */
#ifndef SAMERUN_FUNCTIONS_BINARY_FUNCTIONS_H
#define SAMERUN_FUNCTIONS_BINARY_FUNCTIONS_H

#include "trigonometric.h"
#include "double_double.h"

PORTABLE float hypot_float(float x, float y) {
    const double a = (double)x * x, b = (double)y * y; /* exact */
    if (__builtin_isinf(x) || __builtin_isinf(y)) return (float)INFINITE;
    const double_double_t sum = two_sum(a, b);
    const double h = __builtin_sqrt(sum.high);
    const double_double_t root = {h, fma64(-h, h, sum.high) + sum.low}; /* of the low part the sign alone counts */
    return double_double_to_float(root);
}

/* atan(y / x) for 0 < y <= x < infinity. A double's angle is turned back by its sine and cosine in pairs. */
PORTABLE double_double_t atan_of_quotient_double_double(double y, double x) {
    const double_double_t top = {y, 0}, bottom = {x, 0};
    if (y < x * 0x1p-40) { /* y/x (1 - (y/x)^2 / 3): just below the quotient */
        double_double_t q = double_double_divide(top, bottom);
        q.low -= q.high * 0x1p-90;
        return q;
    }
    const double angle = atan_of_nonnegative_quotient(y, x);
    const double_double_t square = two_product(angle, angle);
    double_double_t s = {angle, 0}, c = {1, 0}, term = {1, 0};
    for (int n = 1; n < 32; n++) {
        term = double_double_multiply(term, square);
        const double_double_t even = {(2.0 * n - 1) * (2.0 * n), 0}, odd = {2.0 * n + 1, 0};
        term = double_double_divide(term, even);
        term.high = -term.high, term.low = -term.low;
        c = double_double_add(c, term);
        const double_double_t of_sine =
            double_double_multiply(double_double_divide(term, odd), DOUBLE_DOUBLE(angle, 0));
        s = double_double_add(s, of_sine);
        if (__builtin_fabs(term.high) < 0x1p-115) break;
    }
    const double_double_t minus_x = {-x, 0};
    const double_double_t across =
        double_double_add(double_double_multiply(top, c), double_double_multiply(minus_x, s));
    const double_double_t along = double_double_add(double_double_multiply(bottom, c), double_double_multiply(top, s));
    return double_double_add(DOUBLE_DOUBLE(angle, 0), double_double_divide(across, along));
}

PORTABLE float atan2_float(float y, float x) {
    const double a = __builtin_fabs((double)y), b = __builtin_fabs((double)x);
    if (!(a == a && b == b)) return x + y;
    const double infinite = INFINITE;
    double wide;
    if (a == 0 || b == infinite) /* on the axis of x */
        wide = a == infinite ? (x > 0 ? QUARTER_PI_0 : 3 * QUARTER_PI_0) : bits_of_float(x) >> 31 ? 2 * HALF_PI_0 : 0;
    else if (b == 0 || a == infinite) wide = HALF_PI_0;
    else {
        wide = atan_of_nonnegative_quotient(a, b);
        if (x < 0) wide = 2 * HALF_PI_0 - (wide - 2 * HALF_PI_1);
        if (!rounding_to_float_is_certain(wide)) {
            double_double_t p = a <= b ? atan_of_quotient_double_double(a, b) : atan_of_quotient_double_double(b, a);
            const double_double_t half_pi = {HALF_PI_0, HALF_PI_1}, pi = {2 * HALF_PI_0, 2 * HALF_PI_1};
            if (a > b) p = double_double_add(half_pi, DOUBLE_DOUBLE(-p.high, -p.low));
            if (x < 0) p = double_double_add(pi, DOUBLE_DOUBLE(-p.high, -p.low));
            return __builtin_copysignf(double_double_to_float(p), y);
        }
    }
    return __builtin_copysignf((float)wide, y);
}

/* log(x) of x near 1, in pairs: 2 (s + s^3/3 + s^5/5 ...) with s = (x-1)/(x+1). */
PORTABLE double_double_t log_double_double(double near_one) {
    const double_double_t s = double_double_divide(two_sum(near_one, -1), two_sum(near_one, 1)),
                          square = double_double_multiply(s, s);
    double_double_t sum = s, power = s;
    for (int n = 3; n < 64 && __builtin_fabs(power.high) > __builtin_fabs(s.high) * 0x1p-112; n += 2) {
        power = double_double_multiply(power, square);
        sum = double_double_add(sum, double_double_divide(power, DOUBLE_DOUBLE(n, 0)));
    }
    return DOUBLE_DOUBLE(2 * sum.high, 2 * sum.low);
}

/* e^t for |t| < 150, in pairs. */
PORTABLE double_double_t exp_double_double(double_double_t t) {
    const double rounded = fma64(t.high, LOG2_E_0, ROUNDER), k = rounded - ROUNDER;
    double_double_t r =
        double_double_add(t, double_double_multiply(DOUBLE_DOUBLE(-k, 0), DOUBLE_DOUBLE(LN2_PAIR_0, LN2_PAIR_1)));
    double_double_t sum = {1, 0}, term = {1, 0};
    for (int n = 1; n < 40; n++) {
        term = double_double_divide(double_double_multiply(term, r), DOUBLE_DOUBLE(n, 0));
        sum = double_double_add(sum, term);
    }
    const double scale = power_of_two_from_rounded(rounded);
    return DOUBLE_DOUBLE(sum.high * scale, sum.low * scale);
}

/* x^y for finite x > 0, x != 1, finite y != 0. */
PORTABLE float pow_positive(double x, double y) {
    uint64_t biased_exponent;
    double small;
    const double m = split_significand_around_one(x, &biased_exponent), k = exponent_from_biased(biased_exponent);
    /* log2(x) = high + low, good to 2^-60: s is a pair, what follows it is small. */
    const double f = m - 1, d = 2 + f, s = f / d, rest = fma64(-s, d, f) / d, z = s * s;
    small = fma64(s * z, log_tail_polynomial(z), 2 * rest);
    const double_double_t scaled = two_product(2 * s, LOG2_E_0);
    const double low = scaled.low + fma64(2 * s, LOG2_E_1, small * LOG2_E_0);
    const double_double_t log2 = two_sum(k, scaled.high);
    const double_double_t log2x = fast_two_sum(log2.high, log2.low + low);
    double_double_t t = two_product(y, log2x.high);
    t.low = fma64(y, log2x.low, t.low);
    if (t.high > 130) return (float)INFINITE;
    if (t.high < -152) return 0;
    const double rounded = t.high + ROUNDER, r = (t.high - (rounded - ROUNDER)) + t.low;
    const double wide =
        double_from_bits(bits_of_double(fma64(r, exp2m1_over_z_polynomial(r), 1)) + (bits_of_double(rounded) << 52));
    if (rounding_to_float_is_certain(wide)) return (float)wide;
    const double_double_t ln2 = {LN2_PAIR_0, LN2_PAIR_1};
    const double_double_t logarithm =
        double_double_add(double_double_multiply(DOUBLE_DOUBLE(k, 0), ln2), log_double_double(m));
    double_double_t result = exp_double_double(double_double_multiply(logarithm, DOUBLE_DOUBLE(y, 0)));
    /* A power may lie exactly in the middle of two floats, or be one; then what is left is the pair's error. */
    if (!(bits_of_double(result.high) & 0xFFFFFFF) && __builtin_fabs(result.low) < result.high * 0x1p-80)
        result.low = 0;
    return double_double_to_float(result);
}

PORTABLE float pow_float(float x, float y) {
    const float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
    if (x == 1 || y == 0) return 1;
    if (!(x == x && y == y)) return x + y;
    const int whole = b >= 0x1p24f || b == (float)(int32_t)b;
    const int odd = b < 0x1p24f && whole && ((int32_t)b & 1);
    const float sign = odd ? __builtin_copysignf(1, x) : 1;
    const float infinite = (float)INFINITE;
    if (b == infinite) return a == 1 ? 1 : (a > 1) == (y > 0) ? infinite : 0;
    if (a == 0 || a == infinite) return sign * ((a == 0) == (y > 0) ? 0 : infinite);
    if (x < 0 && !whole) return (float)NO_NUMBER;
    return sign * (a == 1 ? 1 : pow_positive(a, y));
}

#endif
