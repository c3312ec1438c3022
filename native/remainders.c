/* Remainders of divisions: x - y trunc(x / y), which is exact, and that of the floored quotient, which rounds once.
 * The vector mathematics that torch is built with gives NaN where the quotient is large; its scalar code does not.
 */
#include <stdint.h>

#include "pool.h"
#include "portable.h"

#define LARGEST 0x1.fffffffffffffp1023

/* r - y q, q = trunc(r / y), without a rounding: of doubles because an fma has none inside, of floats because the
 * product of 24 and 24 bits is a double. */
#define LESS64(r, y, q) fma64(-(q), y, r)
#define LESS32(r, y, q) ((r) - (q) * (y))

/* Of x by y (floats are doubles here, their remainder is a float). Quotients of `shift` and more are taken in parts, as
 * in a division by hand; one may have been rounded up to a whole number. */
#define REMAINDER(name, less, shift, back)                                          \
    static inline double name##_step(double r, double y) {                          \
        const double left = less(r, y, (double)(int64_t)(r / y));                   \
        return left < 0 ? left + y : left;                                          \
    }                                                                               \
    static double name(double x, double y) {                                        \
        double r = x < 0 ? -x : x, by = y < 0 ? -y : y, multiple = by;              \
        if (x != x) return x;                                                       \
        if (y != y) return y;                                                       \
        if (r > LARGEST || by == 0) return double_from_bits(0x7FF8000000000000ULL); \
        if (r < by) return x;                                                       \
        while (multiple <= r * back) multiple *= shift;                             \
        for (; multiple > by; multiple *= back) r = name##_step(r, multiple);       \
        r = name##_step(r, by);                                                     \
        return x < 0 ? -r : r;                                                      \
    }

REMAINDER(remainder32, LESS32, 0x1p24, 0x1p-24)
REMAINDER(remainder64, LESS64, 0x1p48, 0x1p-48)

typedef struct {
    int is_double, floored;
    const void *x, *y;
    void *out;
} job_t;

#define REMAINDERS(real, remainder_of)                                           \
    {                                                                            \
        const real *x = job->x, *y = job->y;                                     \
        real *out = job->out;                                                    \
        for (int64_t i = begin; i < end; i++) {                                  \
            const real by = y[i], r = (real)remainder_of(x[i], by);              \
            out[i] = job->floored && r != 0 && (by < 0) != (r < 0) ? r + by : r; \
        }                                                                        \
    }

static void remainders_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    if (job->is_double) REMAINDERS(double, remainder64)
    else REMAINDERS(float, remainder32)
}

/* out = the remainder of x by y, of n floats or doubles. `floored`: it has the sign of y. */
void samerun_remainders(int is_double, int floored, const void *x, const void *y, void *out, int64_t n) {
    job_t job = {is_double, floored, x, y, out};
    samerun_parallel_for(n, 4096, remainders_range, &job);
}
