/* pow, atan2, hypot: correctly rounded functions of two floats. */
#ifndef SAMERUN_FUNCTIONS_TWO_ARGUMENTS_H
#define SAMERUN_FUNCTIONS_TWO_ARGUMENTS_H

#include "trigonometric.h"
#include "double_double.h"

PORTABLE float hypot_float(float x, float y) {
    const double a = (double)x * x, b = (double)y * y; /* exact */
    if (__builtin_isinf(x) || __builtin_isinf(y)) return (float)INFINITE;
    const pair_t sum = pair_from_sum(a, b);
    const double h = __builtin_sqrt(sum.high);
    const pair_t root = {h, fma64(-h, h, sum.high) + sum.low}; /* of the low part the sign alone counts */
    return pair_to_float(root);
}

/* atan(y / x) for 0 < y <= x < infinity. A double's angle is turned back by its sine and cosine in pairs. */
PORTABLE pair_t atan_quotient_pair(double y, double x) {
    const pair_t top = {y, 0}, bottom = {x, 0};
    if (y < x * 0x1p-40) { /* y/x (1 - (y/x)^2 / 3): just below the quotient */
        pair_t q = pair_divide(top, bottom);
        q.low -= q.high * 0x1p-90;
        return q;
    }
    const double angle = atan_of_quotient(y, x);
    const pair_t square = pair_from_product(angle, angle);
    pair_t s = {angle, 0}, c = {1, 0}, term = {1, 0};
    for (int n = 1; n < 32; n++) {
        term = pair_multiply(term, square);
        const pair_t even = {(2.0 * n - 1) * (2.0 * n), 0}, odd = {2.0 * n + 1, 0};
        term = pair_divide(term, even);
        term.high = -term.high, term.low = -term.low;
        c = pair_add(c, term);
        const pair_t of_sine = pair_multiply(pair_divide(term, odd), PAIR(angle, 0));
        s = pair_add(s, of_sine);
        if (__builtin_fabs(term.high) < 0x1p-115) break;
    }
    const pair_t minus_x = {-x, 0};
    const pair_t across = pair_add(pair_multiply(top, c), pair_multiply(minus_x, s));
    const pair_t along = pair_add(pair_multiply(bottom, c), pair_multiply(top, s));
    return pair_add(PAIR(angle, 0), pair_divide(across, along));
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
        wide = atan_of_quotient(a, b);
        if (x < 0) wide = 2 * HALF_PI_0 - (wide - 2 * HALF_PI_1);
        if (!rounds_to_one_float(wide)) {
            pair_t p = a <= b ? atan_quotient_pair(a, b) : atan_quotient_pair(b, a);
            const pair_t half_pi = {HALF_PI_0, HALF_PI_1}, pi = {2 * HALF_PI_0, 2 * HALF_PI_1};
            if (a > b) p = pair_add(half_pi, PAIR(-p.high, -p.low));
            if (x < 0) p = pair_add(pi, PAIR(-p.high, -p.low));
            return __builtin_copysignf(pair_to_float(p), y);
        }
    }
    return __builtin_copysignf((float)wide, y);
}

/* log(m) for m near 1, in pairs: 2 (s + s^3/3 + s^5/5 ...) with s = (m-1)/(m+1). */
PORTABLE pair_t log_pair(double m) {
    const pair_t s = pair_divide(pair_from_sum(m, -1), pair_from_sum(m, 1)), square = pair_multiply(s, s);
    pair_t sum = s, power = s;
    for (int n = 3; n < 64 && __builtin_fabs(power.high) > __builtin_fabs(s.high) * 0x1p-112; n += 2) {
        power = pair_multiply(power, square);
        sum = pair_add(sum, pair_divide(power, PAIR(n, 0)));
    }
    return PAIR(2 * sum.high, 2 * sum.low);
}

/* e^t for |t| < 150, in pairs. */
PORTABLE pair_t exp_pair(pair_t t) {
    const double rounded = fma64(t.high, LOG2_E_0, ROUNDER), k = rounded - ROUNDER;
    pair_t r = pair_add(t, pair_multiply(PAIR(-k, 0), PAIR(LN2_PAIR_0, LN2_PAIR_1)));
    pair_t sum = {1, 0}, term = {1, 0};
    for (int n = 1; n < 40; n++) {
        term = pair_divide(pair_multiply(term, r), PAIR(n, 0));
        sum = pair_add(sum, term);
    }
    const double scale = power_of_two_from_rounded(rounded);
    return PAIR(sum.high * scale, sum.low * scale);
}

/* x^y for finite x > 0, x != 1, finite y != 0. */
PORTABLE float pow_positive(double x, double y) {
    uint64_t biased_exponent;
    double small;
    const double m = split_significand(x, &biased_exponent), k = exponent_from_biased(biased_exponent);
    /* log2(x) = high + low, good to 2^-60: s is a pair, what follows it is small. */
    const double f = m - 1, d = 2 + f, s = f / d, rest = fma64(-s, d, f) / d, z = s * s;
    small = fma64(s * z, log_tail_polynomial(z), 2 * rest);
    const pair_t scaled = pair_from_product(2 * s, LOG2_E_0);
    const double low = scaled.low + fma64(2 * s, LOG2_E_1, small * LOG2_E_0);
    const pair_t log2 = pair_from_sum(k, scaled.high);
    const pair_t log2x = normalize_pair(log2.high, log2.low + low);
    pair_t t = pair_from_product(y, log2x.high);
    t.low = fma64(y, log2x.low, t.low);
    if (t.high > 130) return (float)INFINITE;
    if (t.high < -152) return 0;
    const double rounded = t.high + ROUNDER, r = (t.high - (rounded - ROUNDER)) + t.low;
    const double wide =
        double_from_bits(bits_of_double(fma64(r, exp2_tail_polynomial(r), 1)) + (bits_of_double(rounded) << 52));
    if (rounds_to_one_float(wide)) return (float)wide;
    const pair_t ln2 = {LN2_PAIR_0, LN2_PAIR_1};
    const pair_t logarithm = pair_add(pair_multiply(PAIR(k, 0), ln2), log_pair(m));
    pair_t result = exp_pair(pair_multiply(logarithm, PAIR(y, 0)));
    /* A power may lie exactly in the middle of two floats, or be one; then what is left is the pair's error. */
    if (!(bits_of_double(result.high) & 0xFFFFFFF) && __builtin_fabs(result.low) < result.high * 0x1p-80)
        result.low = 0;
    return pair_to_float(result);
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
