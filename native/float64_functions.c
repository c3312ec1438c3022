/* Class R for float64: every function is evaluated in pairs of doubles (about 2^-95 of the result), so that nearly every
 * rounding is certain. Values whose rounding is not are marked, and the caller computes those in whole numbers
 * (reference/fixed_point.py). So the result is the correctly rounded one, and none of its bits depends on how it was
 * found: starting values may come from the platform's own mathematical library.
 */
#include <math.h>
#include <stdint.h>

#include "functions/double_double.h"
#include "thread_pool.h"

typedef double_double_t pair_t;

#define SURE 0x1p-80 /* what a pair may be wrong by, of itself: with much room */
#define PAIR DOUBLE_DOUBLE
static const pair_t LN2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
static const pair_t LN10 = {0x1.26bb1bbb55516p+1, -0x1.f48ad494ea3e9p-53};
static const pair_t PI_HALF = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
static const pair_t TWO_OVER_ROOT_PI = {0x1.20dd750429b6dp+0, 0x1.1ae3a914fed80p-56};
static const pair_t ROOT_PI = {0x1.c5bf891b4ef6bp+0, -0x1.618f13eb7ca89p-54};

static pair_t add(pair_t a, pair_t b) { return double_double_add(a, b); }
static pair_t multiply(pair_t a, pair_t b) { return double_double_multiply(a, b); }
static pair_t divide(pair_t a, pair_t b) { return double_double_divide(a, b); }
static pair_t negate(pair_t a) { return PAIR(-a.high, -a.low); }
static pair_t subtract(pair_t a, pair_t b) { return add(a, negate(b)); }
static pair_t scale(pair_t a, double power_of_two) { return PAIR(a.high * power_of_two, a.low * power_of_two); }

static pair_t square_root(pair_t a) {
    if (a.high <= 0) return PAIR(0, 0);
    const double h = __builtin_sqrt(a.high);
    const pair_t rest = subtract(a, two_product(h, h));
    return fast_two_sum(h, rest.high / (2 * h));
}

/* A result and the power of two that it is still to be multiplied by. */
typedef struct {
    pair_t value;
    int exponent;
} scaled_t;

static scaled_t unscaled(pair_t value) { return (scaled_t){value, 0}; }

/* e^r - 1 for |r| < 0.36, relative to the result: the series of r / 64, then (1 + p)^2 - 1 = p (2 + p) six times. */
static pair_t expm1_reduced(pair_t r) {
    const pair_t small = scale(r, 0x1p-6);
    pair_t sum = {0, 0};
    for (int n = 16; n > 1; n--) sum = divide(multiply(add(sum, PAIR(1, 0)), small), PAIR(n, 0));
    pair_t p = multiply(add(sum, PAIR(1, 0)), small);
    for (int i = 0; i < 6; i++) p = multiply(p, add(p, PAIR(2, 0)));
    return p;
}

/* x = k ln(2) + r; returns e^r - 1. |x| < 1100. */
static pair_t expm1_and_exponent(pair_t x, int *k) {
    *k = (int)__builtin_rint(x.high / LN2.high);
    return expm1_reduced(subtract(x, multiply(PAIR(*k, 0), LN2)));
}

static scaled_t exp_pair(pair_t x) {
    scaled_t result;
    result.value = add(expm1_and_exponent(x, &result.exponent), PAIR(1, 0));
    return result;
}

static pair_t exp_pair_times_power_of_two(pair_t x) {
    const scaled_t e = exp_pair(x);
    return scale(e.value, __builtin_ldexp(1, e.exponent));
}

static pair_t expm1_pair(pair_t x) {
    int k;
    const pair_t p = expm1_and_exponent(x, &k);
    if (k == 0) return p;
    const double power = __builtin_ldexp(1, k);
    return add(scale(p, power), two_sum(power, -1));
}

/* log(1 + u) for |u| <= 1/2, relative to the result: y + log(1 + w), 1 + w = (1 + u) e^-y. */
static pair_t log1p_near_zero(pair_t u) {
    const double y = log1p(u.high);
    const pair_t p = expm1_pair(PAIR(-y, 0));
    const pair_t w = add(add(u, p), multiply(u, p));
    const pair_t half_square = scale(multiply(w, w), 0.5);
    return add(PAIR(y, 0), subtract(w, half_square));
}

/* x = 2^k m, m between sqrt(1/2) and sqrt(2). */
static double frexp_near_one(double x, int *k) {
    double m = frexp(x, k);
    if (m < 0.70710678118654752) m *= 2, *k -= 1;
    return m;
}

static pair_t log_pair(double x, pair_t *of_significand, int *k) {
    const double m = frexp_near_one(x, k);
    *of_significand = log1p_near_zero(PAIR(m - 1, 0)); /* m - 1 is exact */
    return add(multiply(PAIR(*k, 0), LN2), *of_significand);
}

/* log(1 + u) for u > -1, relative to the result. */
static pair_t log1p_pair(pair_t u) {
    if (__builtin_fabs(u.high) <= 0.25) return log1p_near_zero(u);
    const pair_t x = add(u, PAIR(1, 0));
    int k;
    frexp_near_one(x.high, &k);
    return add(multiply(PAIR(k, 0), LN2), log1p_near_zero(subtract(scale(x, __builtin_ldexp(1, -k)), PAIR(1, 0))));
}

static pair_t natural_log(double x) {
    pair_t m;
    int k;
    return log_pair(x, &m, &k);
}

/* |r| <= pi/4. */
static void sine_and_cosine_reduced(pair_t r, pair_t *sine, pair_t *cosine) {
    const pair_t square = multiply(r, r);
    pair_t s = {0, 0}, c = {0, 0};
    for (int n = 28; n > 0; n -= 2) {
        c = negate(divide(multiply(add(c, PAIR(1, 0)), square), PAIR((double)n * (n - 1), 0)));
        s = negate(divide(multiply(add(s, PAIR(1, 0)), square), PAIR((double)n * (n + 1), 0)));
    }
    *cosine = add(c, PAIR(1, 0));
    *sine = multiply(add(s, PAIR(1, 0)), r);
}

/* The angle of the point (x, y) in the first octant, 0 <= y <= x: a double's angle, turned back. */
static pair_t angle_in_octant(pair_t y, pair_t x) {
    if (y.high == 0) return PAIR(0, 0);
    const pair_t quotient = divide(y, x);
    if (quotient.high < 0x1p-20) { /* t - t^3/3 + t^5/5 */
        const pair_t square = multiply(quotient, quotient);
        pair_t sum = divide(square, PAIR(-7, 0));
        sum = multiply(add(sum, PAIR(0.2, 0x1.999999999999ap-57)), square);
        sum = multiply(subtract(sum, divide(PAIR(1, 0), PAIR(3, 0))), square);
        return add(quotient, multiply(quotient, sum));
    }
    const double angle = atan(quotient.high);
    pair_t s, c;
    sine_and_cosine_reduced(PAIR(angle, 0), &s, &c);
    const pair_t across = subtract(multiply(quotient, c), s), along = add(c, multiply(quotient, s));
    return add(PAIR(angle, 0), divide(across, along));
}

/* atan(y / x) for y >= 0 and x >= 0, not both 0. */
static pair_t angle_in_quadrant(pair_t y, pair_t x) {
    if (y.high <= x.high) return angle_in_octant(y, x);
    return subtract(PI_HALF, angle_in_octant(x, y));
}

/* 2/pi in words of 64 bits, the first behind the point. */
static const uint64_t TWO_OVER_PI[21] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d,
    0xa9e391615ee61b08,
};

enum { WINDOW = 5 }; /* 320 bits: 53 + 2 of whole quarters, 64 that may cancel, and 150 that count */

static uint64_t bits_of_two_over_pi(int from) {
    if (from <= -64) return 0;
    if (from < 0) return TWO_OVER_PI[0] >> -from;
    const int word = from / 64, shift = from % 64;
    const uint64_t high = word < 21 ? TWO_OVER_PI[word] : 0, low = word + 1 < 21 ? TWO_OVER_PI[word + 1] : 0;
    return shift ? high << shift | low >> (64 - shift) : high;
}

/* x > 0 as quarter turns and a rest, |rest| <= pi/4 (Payne and Hanek, Radian reduction for trigonometric functions,
 * 1983): of x times 2/pi only the bits around the point are computed. */
static pair_t reduce_positive_angle(double x, int *quarter) {
    int exponent;
    const uint64_t m = (uint64_t)__builtin_ldexp(frexp(x, &exponent), 53); /* x = m 2^(exponent - 53) */
    /* Bit i of 2/pi (from 1) weighs 2^-i, in the product m 2^(exponent - 53 - i): whole multiples of 4 are left out. */
    const int from = exponent - 53 - 2 > 0 ? exponent - 53 - 2 : 0;
    uint64_t product[WINDOW + 1] = {0};
    uint64_t carry = 0;
    for (int word = WINDOW - 1; word >= 0; word--) {
        const unsigned __int128 p = (unsigned __int128)m * bits_of_two_over_pi(from + 64 * word) + carry;
        product[word + 1] = (uint64_t)p;
        carry = (uint64_t)(p >> 64);
    }
    product[0] = carry;
    /* The product is an integer of 384 bits times 2^(exponent - 53 - from - 320); its point lies here: */
    int point = 64 * WINDOW - (exponent - 53 - from); /* bits behind it */
    uint64_t fraction[4] = {0}; /* the 256 bits behind it */
    uint64_t whole = 0;
    for (int bit = -2; bit < 256; bit++) {
        const int at = point - 1 - bit; /* from the lowest bit */
        uint64_t value = 0;
        if (at >= 0 && at < 64 * (WINDOW + 1)) value = product[WINDOW - at / 64] >> (at % 64) & 1;
        if (bit < 0) whole = whole << 1 | value;
        else fraction[bit / 64] |= value << (63 - bit % 64);
    }
    const int negative = (int)(fraction[0] >> 63);
    if (negative) { /* nearer to the next quarter */
        whole++;
        for (int word = 3, borrow = 1; word >= 0; word--) {
            fraction[word] = ~fraction[word] + (uint64_t)borrow;
            borrow = borrow && fraction[word] == 0;
        }
    }
    pair_t part = {0, 0};
    for (int word = 3; word >= 0; word--)
        for (int half = 0; half < 2; half++) { /* words of 32 bits are doubles */
            const double value = (double)(half ? fraction[word] >> 32 : fraction[word] & 0xFFFFFFFF);
            part = add(PAIR(value * __builtin_ldexp(1, -64 * word - (half ? 32 : 64)), 0), part);
        }
    *quarter = (int)(whole & 3);
    const pair_t rest = multiply(part, PI_HALF);
    return negative ? negate(rest) : rest;
}

enum { SINE, COSINE, TANGENT };

static pair_t circular(double x, int which) {
    pair_t s, c;
    int quarter;
    const double size = __builtin_fabs(x);
    sine_and_cosine_reduced(reduce_positive_angle(size, &quarter), &s, &c);
    if (quarter & 1) {
        const pair_t other = s;
        s = c, c = negate(other);
    }
    if (quarter & 2) s = negate(s), c = negate(c);
    if (which == COSINE) return c;
    const pair_t y = which == SINE ? s : divide(s, c);
    return x < 0 ? negate(y) : y;
}

/* erf by its series without cancellation, 2/sqrt(pi) e^(-x^2) (x + 2/3 x^3 + 4/15 x^5 + ...), 0 < x < 6.5. */
static pair_t erf_positive(double x) {
    const pair_t square = two_product(x, x);
    pair_t term = {x, 0}, sum = term;
    for (int n = 1; n < 400 && term.high > sum.high * 0x1p-110; n++) {
        term = divide(multiply(term, scale(square, 2)), PAIR(2.0 * n + 1, 0));
        sum = add(sum, term);
    }
    return multiply(multiply(sum, TWO_OVER_ROOT_PI), exp_pair_times_power_of_two(negate(square)));
}

/* erfc(x) for x >= 2: e^(-x^2) / sqrt(pi) over the continued fraction x + (1/2)/(x + 1/(x + (3/2)/(x + ...))). */
static scaled_t erfc_large(double x) {
    const int terms = (int)(60 + 1400 / (x * x));
    pair_t below = {x, 0};
    for (int n = terms; n > 0; n--) below = add(PAIR(x, 0), divide(PAIR(n * 0.5, 0), below));
    scaled_t result = exp_pair(negate(two_product(x, x)));
    result.value = divide(result.value, multiply(ROOT_PI, below));
    return result;
}

/* The numbers are those of the functions of float32 (functions/float_functions.h). */
enum {
    EXP,
    EXP2,
    EXPM1,
    SINH,
    COSH,
    TANH,
    ASIN,
    ACOS,
    ATAN,
    ERF,
    ERFC,
    RSQRT,
    RECIPROCAL,
    CBRT,
    SIGMOID,
    LOG,
    LOG2,
    LOG10,
    LOG1P,
    ASINH,
    ACOSH,
    ATANH,
    SIN,
    COS,
    TAN
}; /* clang-format keeps one a line otherwise */

static int is_identity_near_zero(int function) { /* f(x) = x (1 + O(x)): tiny x are their own result */
    return function == EXPM1 || function == SINH || function == TANH || function == ASIN || function == ATAN ||
           function == LOG1P || function == ASINH || function == ATANH || function == SIN || function == TAN;
}

static pair_t with_sign(pair_t p, double x) { return x < 0 ? negate(p) : p; }

/* Of x with no special result. */
static scaled_t evaluate(int function, double x) {
    const double a = __builtin_fabs(x);
    const pair_t one = {1, 0};
    scaled_t e;
    int k;
    pair_t p, q;
    switch (function) {
    case EXP: return exp_pair(PAIR(x, 0));
    case EXP2: k = (int)__builtin_rint(x); return (scaled_t){add(expm1_reduced(multiply(PAIR(x - k, 0), LN2)), one), k};
    case EXPM1:
        if (x > 200) return exp_pair(PAIR(x, 0)); /* 1 lies far below */
        return unscaled(expm1_pair(PAIR(x, 0)));
    case SINH:
        if (a > 40) {
            e = exp_pair(PAIR(a, 0));
            return (scaled_t){with_sign(e.value, x), e.exponent - 1};
        }
        p = expm1_pair(PAIR(a, 0));
        return unscaled(with_sign(scale(add(p, divide(p, add(p, one))), 0.5), x));
    case COSH:
        e = exp_pair(PAIR(a, 0));
        if (a > 40) return (scaled_t){e.value, e.exponent - 1};
        p = scale(e.value, __builtin_ldexp(1, e.exponent));
        return unscaled(scale(add(p, divide(one, p)), 0.5));
    case TANH: p = expm1_pair(PAIR(2 * a, 0)); return unscaled(with_sign(divide(p, add(p, PAIR(2, 0))), x));
    case ASIN:
        p = square_root(multiply(two_sum(1, -a), two_sum(1, a)));
        return unscaled(with_sign(angle_in_quadrant(PAIR(a, 0), p), x));
    case ACOS:
        p = angle_in_quadrant(square_root(multiply(two_sum(1, -a), two_sum(1, a))), PAIR(a, 0));
        return unscaled(x < 0 ? subtract(scale(PI_HALF, 2), p) : p);
    case ATAN: return unscaled(with_sign(a > 0x1p120 ? PI_HALF : angle_in_quadrant(PAIR(a, 0), one), x));
    case ERF:
        if (a < 0x1p-60) { /* 2/sqrt(pi) x; scaled, so that the low part of the product is not lost */
            p = PAIR(frexp(a, &k), 0);
            return (scaled_t){with_sign(multiply(p, TWO_OVER_ROOT_PI), x), k};
        }
        return unscaled(with_sign(erf_positive(a), x));
    case ERFC:
        if (x >= 2) return erfc_large(x);
        return unscaled(x == 0 ? one : x < 0 ? add(one, erf_positive(a)) : subtract(one, erf_positive(a)));
    case RSQRT:
        k = 0;
        frexp(x, &k);
        k &= ~1;
        return (scaled_t){divide(one, square_root(PAIR(__builtin_ldexp(x, -k), 0))), -k / 2};
    case CBRT: {
        frexp(a, &k);
        k = k / 3 * 3;
        const double m = __builtin_ldexp(a, -k), y = cbrt(m);
        const pair_t square = two_product(y, y);
        const pair_t rest = subtract(PAIR(m, 0), multiply(square, PAIR(y, 0)));
        p = add(PAIR(y, 0), divide(rest, scale(square, 3)));
        /* One more: the first step leaves rest^2, about 2^-104. */
        q = subtract(PAIR(m, 0), multiply(multiply(p, p), p));
        return (scaled_t){with_sign(add(p, divide(q, scale(square, 3))), x), k / 3};
    }
    case SIGMOID:
        e = exp_pair(PAIR(-a, 0));
        p = scale(e.value, __builtin_ldexp(1, e.exponent < -1000 ? -1000 : e.exponent));
        if (x >= 0) return unscaled(divide(one, add(one, p)));
        return (scaled_t){divide(e.value, add(one, p)), e.exponent};
    case LOG: return unscaled(natural_log(x));
    case LOG2: log_pair(x, &p, &k); return unscaled(add(PAIR(k, 0), divide(p, LN2)));
    case LOG10: return unscaled(divide(natural_log(x), LN10));
    case LOG1P:
        if (x > 0x1p60) return unscaled(add(natural_log(x), PAIR(1 / x, 0)));
        return unscaled(log1p_pair(PAIR(x, 0)));
    case ASINH: /* log1p(a + a^2 / (1 + sqrt(1 + a^2))) */
        if (a > 0x1p60) return unscaled(with_sign(add(natural_log(a), LN2), x));
        p = two_product(a, a);
        q = add(one, square_root(add(one, p)));
        return unscaled(with_sign(log1p_pair(add(PAIR(a, 0), divide(p, q))), x));
    case ACOSH: /* log1p(t + sqrt(2t + t^2)), t = x - 1 */
        if (x > 0x1p60) return unscaled(add(natural_log(x), LN2));
        p = two_sum(x, -1);
        return unscaled(log1p_pair(add(p, square_root(multiply(p, add(p, PAIR(2, 0)))))));
    case ATANH: return unscaled(with_sign(scale(log1p_pair(divide(PAIR(2 * a, 0), two_sum(1, -a))), 0.5), x));
    case SIN: return unscaled(circular(x, SINE));
    case COS: return unscaled(circular(x, COSINE));
    default: return unscaled(circular(x, TANGENT));
    }
}

/* Results that are exact, saturate, or are no number. */
static int try_special_value(int function, double x, double *y) {
    const double a = __builtin_fabs(x), inf = INFINITE;
    if (x != x) return *y = x, 1;
    if (is_identity_near_zero(function) && a < 0x1p-55) return *y = x, 1;
    switch (function) {
    case EXP:
    case EXP2:
    case SIGMOID:
    case COSH:
        if (a < 0x1p-60) return *y = function == SIGMOID ? 0.5 : 1, 1;
        if (function == COSH) return a > 711 ? (*y = inf, 1) : 0;
        if (function == EXP) return x > 710 ? (*y = inf, 1) : x < -746 ? (*y = 0, 1) : 0;
        if (function == EXP2) return x >= 1024 ? (*y = inf, 1) : x < -1076 ? (*y = 0, 1) : 0;
        return x > 40 ? (*y = 1, 1) : x < -746 ? (*y = 0, 1) : 0;
    case EXPM1: return x > 710 ? (*y = inf, 1) : x < -40 ? (*y = -1, 1) : 0;
    case SINH: return a > 711 ? (*y = copy_sign(inf, x), 1) : 0;
    case TANH: return a > 20 ? (*y = copy_sign(1, x), 1) : 0;
    case ASIN:
    case ACOS: return a > 1 ? (*y = NO_NUMBER, 1) : function == ACOS && x == 1 ? (*y = 0, 1) : 0;
    case ERF: return a > 6.5 ? (*y = copy_sign(1, x), 1) : x == 0 ? (*y = x, 1) : 0;
    case ERFC: return x > 28 ? (*y = 0, 1) : x < -6.5 ? (*y = 2, 1) : a < 0x1p-60 ? (*y = 1, 1) : 0;
    case RSQRT: return x < 0 ? (*y = NO_NUMBER, 1) : x == 0 ? (*y = copy_sign(inf, x), 1) : x == inf ? (*y = 0, 1) : 0;
    case RECIPROCAL: return *y = 1 / x, 1;
    case CBRT: return x == 0 || a == inf ? (*y = x, 1) : 0;
    case LOG:
    case LOG2:
    case LOG10:
        return x < 0      ? (*y = NO_NUMBER, 1)
               : x == 0   ? (*y = -inf, 1)
               : x == inf ? (*y = x, 1)
               : x == 1   ? (*y = 0, 1)
                          : 0;
    case LOG1P: return x < -1 ? (*y = NO_NUMBER, 1) : x == -1 ? (*y = -inf, 1) : x == inf ? (*y = x, 1) : 0;
    case ASINH: return a == inf ? (*y = x, 1) : 0;
    case ACOSH: return x < 1 ? (*y = NO_NUMBER, 1) : x == 1 ? (*y = 0, 1) : x == inf ? (*y = x, 1) : 0;
    case ATANH: return a > 1 ? (*y = NO_NUMBER, 1) : a == 1 ? (*y = copy_sign(inf, x), 1) : 0;
    case SIN:
    case TAN: return a == inf ? (*y = NO_NUMBER, 1) : 0;
    case COS: return a == inf ? (*y = NO_NUMBER, 1) : a < 0x1p-60 ? (*y = 1, 1) : 0;
    default: return 0;
    }
}

/* The double nearest to a result. *in_doubt: the pair may be wrong by more than what lies between it and a middle of two
 * doubles, or the result is subnormal, which rounds at another place. */
static double round_result(scaled_t result, uint8_t *in_doubt) {
    const pair_t p = fast_two_sum(result.value.high, result.value.low);
    const double error = __builtin_fabs(p.high) * SURE;
    const double y = __builtin_ldexp(p.high, result.exponent);
    *in_doubt =
        p.high + (p.low + error) != p.high || p.high + (p.low - error) != p.high || __builtin_fabs(y) < 0x1p-1021;
    return y;
}

static double map_one(int function, double x, uint8_t *in_doubt) {
    double y;
    *in_doubt = 0;
    return try_special_value(function, x, &y) ? y : round_result(evaluate(function, x), in_doubt);
}

typedef struct {
    int function;
    const double *x, *y;
    double *out;
    uint8_t *in_doubt;
} float64_job_t;

static void map_float64_range(void *float64_job, int64_t element_begin, int64_t element_end) {
    const float64_job_t *job = float64_job;
    for (int64_t i = element_begin; i < element_end; i++)
        job->out[i] = map_one(job->function, job->x[i], job->in_doubt + i);
}

/* out = function(x) for n doubles; in_doubt[i] is 1 where out[i] is to be computed otherwise. */
void samerun_map_float64_function(int function, const double *x, double *out, uint8_t *in_doubt, int64_t n) {
    float64_job_t job = {function, x, 0, out, in_doubt};
    samerun_parallel_for(n, 64, map_float64_range, &job);
}

static double hypot_one(double x, double y, uint8_t *in_doubt) {
    double a = __builtin_fabs(x), b = __builtin_fabs(y);
    *in_doubt = 0;
    if (__builtin_isinf(x) || __builtin_isinf(y)) return INFINITE;
    if (!(x == x && y == y)) return x + y;
    if (a < b) {
        const double larger = b;
        b = a, a = larger;
    }
    if (b == 0) return a;
    int k;
    frexp(a, &k);
    a = __builtin_ldexp(a, -k), b = __builtin_ldexp(b, -k);
    if (b < 0x1p-60) return __builtin_ldexp(a, k); /* what b adds is far below the last place */
    return round_result((scaled_t){square_root(add(two_product(a, a), two_product(b, b))), k}, in_doubt);
}

static double atan2_one(double y, double x, uint8_t *in_doubt) {
    double a = __builtin_fabs(y), b = __builtin_fabs(x);
    *in_doubt = 0;
    if (!(x == x && y == y)) return x + y;
    const int left = (int)(bits_of_double(x) >> 63);
    const pair_t pi = scale(PI_HALF, 2);
    pair_t p;
    const double inf = INFINITE;
    if (a == 0 || (b == inf && a < inf)) p = left ? pi : PAIR(0, 0);
    else if (b == 0 || (a == inf && b < inf)) p = PI_HALF;
    else {
        if (a == inf) a = b = 1;
        int ka, kb;
        a = frexp(a, &ka), b = frexp(b, &kb);
        const int apart = ka - kb;
        if (apart > 200) p = PI_HALF, a = 0;
        else if (apart < -200) {
            if (!left) { /* the quotient, less what lies far below its last place */
                const double quotient = __builtin_ldexp(a / b, apart);
                *in_doubt = quotient < 0x1p-1021;
                return copy_sign(quotient, y);
            }
            p = pi, a = 0;
        }
        if (a != 0) {
            p = angle_in_quadrant(PAIR(__builtin_ldexp(a, apart), 0), PAIR(b, 0));
            if (left) p = subtract(pi, p);
        }
    }
    if (p.high == 0) return copy_sign(0, y);
    return copy_sign(round_result(unscaled(p), in_doubt), y);
}

static double pow_one(double x, double y, uint8_t *in_doubt) {
    const double a = __builtin_fabs(x), b = __builtin_fabs(y), inf = INFINITE;
    *in_doubt = 0;
    if (x == 1 || y == 0) return 1;
    if (!(x == x && y == y)) return x + y;
    const int whole = b >= 0x1p53 || b == (double)(int64_t)b;
    const int odd = b < 0x1p53 && whole && ((int64_t)b & 1);
    const double sign = odd ? copy_sign(1, x) : 1;
    if (b == inf) return a == 1 ? 1 : (a > 1) == (y > 0) ? inf : 0;
    if (a == 0 || a == inf) return sign * ((a == 0) == (y > 0) ? 0 : inf);
    if (x < 0 && !whole) return NO_NUMBER;
    if (a == 1) return sign;
    const pair_t logarithm = natural_log(a);
    if (logarithm.high * y > 710) return sign * inf;
    if (logarithm.high * y < -746) return sign * 0;
    if (b < 0x1p-70) return sign; /* within 2^-60 of 1 */
    scaled_t result = exp_pair(multiply(logarithm, PAIR(y, 0)));
    return sign * round_result(result, in_doubt);
}

static void map_float64_binary_range(void *float64_job, int64_t element_begin, int64_t element_end) {
    static double (*const functions[])(double, double, uint8_t *) = {pow_one, atan2_one, hypot_one};
    const float64_job_t *job = float64_job;
    for (int64_t i = element_begin; i < element_end; i++)
        job->out[i] = functions[job->function](job->x[i], job->y[i], job->in_doubt + i);
}

/* out = pow(x, y), atan2(x, y) or hypot(x, y) (kernels.h has the numbers), and where it is in doubt. */
void samerun_map_float64_binary_function(int function, const double *x, const double *y, double *out, uint8_t *in_doubt,
                                         int64_t n) {
    float64_job_t job = {function, x, y, out, in_doubt};
    if (function >= 0 && function < 3) samerun_parallel_for(n, 64, map_float64_binary_range, &job);
}
