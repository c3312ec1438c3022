/* The entries for Python of what is computed value by value, or row by row: functions, activations, the softmax family,
 * steps of optimizers, square roots and remainders. Arrays are float32 and contiguous where nothing else is said. */
#include <stddef.h>
#include <stdint.h>

#include "functions/float_functions.h"
#include "kernels.h"
#include "thread_pool.h"
#include "portable.h"

typedef struct {
    int function;
    const float *x;
    float *y;
} function_job_t;

static void map_function_range(void *function_job, int64_t element_begin, int64_t element_end) {
    const function_job_t *job = function_job;
    samerun_current_kernels()->function[job->function](job->x + element_begin, job->y + element_begin,
                                                       element_end - element_begin);
}

/* y = function(x) for n floats next to each other; y may be x. */
void samerun_map_function(int function, const float *x, float *y, int64_t n) {
    function_job_t job = {function, x, y};
    if (function >= 0 && function < FUNCTIONS) samerun_parallel_for(n, 4096, map_function_range, &job);
}

/* The name of a function by its number, NULL beyond the last. */
const char *samerun_function_name(int function) {
#define NAME_OF(name) #name,
    static const char *const names[] = {ALL_FUNCTIONS(NAME_OF)};
    return function < 0 || function >= FUNCTIONS ? 0 : names[function];
}

typedef struct {
    int function;
    const float *x, *y;
    float *out;
    int64_t n, values_per_row; /* of a row; how many values of out it makes */
} rows_job_t;

static void map_binary_function_range(void *rows_job, int64_t element_begin, int64_t element_end) {
    const rows_job_t *job = rows_job;
    samerun_current_kernels()->binary_function(job->function, job->x + element_begin, job->y + element_begin,
                                               job->out + element_begin, element_end - element_begin);
}

/* out = pow(x, y), atan2(x, y) or hypot(x, y) (kernels.h has the numbers). */
void samerun_map_binary_function(int function, const float *x, const float *y, float *out, int64_t n) {
    rows_job_t job = {function, x, y, out, 0, 0};
    samerun_parallel_for(n, 1024, map_binary_function_range, &job);
}

static void map_activation_or_gradient_range(void *rows_job, int64_t element_begin, int64_t element_end) {
    const rows_job_t *job = rows_job;
    const float *grad = job->y ? job->y + element_begin : NULL;
    samerun_current_kernels()->activation(job->function, job->x + element_begin, grad, job->out + element_begin,
                                          element_end - element_begin);
}

void samerun_map_activation(int activation, const float *x, const float *grad_or_null, float *out, int64_t n) {
    rows_job_t job = {activation, x, grad_or_null, out, 0, 0};
    samerun_parallel_for(n, 4096, map_activation_or_gradient_range, &job);
}

static void softmax_family_range(void *rows_job, int64_t row_begin, int64_t row_end) {
    const rows_job_t *job = rows_job;
    for (int64_t i = row_begin; i < row_end; i++)
        samerun_current_kernels()->softmax_family_row(job->function, job->x + i * job->n,
                                                      job->y ? job->y + i * job->n : NULL,
                                                      job->out + i * job->values_per_row, job->n);
}

/* `rows` rows of n values each. The backward ones take the output of the forward one, and `grad_output`. LOGSUMEXP
 * makes one value of a row. */
void samerun_softmax_family_rows(int function, const float *input_or_output, const float *grad_output, float *result,
                                 int64_t rows, int64_t n) {
    rows_job_t job = {function, input_or_output, grad_output, result, n, function == LOGSUMEXP ? 1 : n};
    samerun_parallel_for(rows, 1 + 8192 / (n + 1), softmax_family_range, &job);
}

typedef struct {
    int update;
    float *x;
    const float *y, *z;
    float value;
} update_job_t;

static void lerp_addcmul_or_addcdiv_range(void *update_job, int64_t element_begin, int64_t element_end) {
    const update_job_t *job = update_job;
    samerun_current_kernels()->update(job->update, job->x + element_begin, job->y + element_begin,
                                      job->z + element_begin, job->value, element_end - element_begin);
}

/* x becomes x + (y - x) * value, x + (y * value) * z or x + (y * value) / z (kernels.h has the numbers). x may be
 * one of the others, but not overlap them otherwise. */
void samerun_lerp_addcmul_or_addcdiv_inplace(int operation, float *x, const float *y, const float *z, float value,
                                             int64_t n) {
    update_job_t job = {operation, x, y, z, value};
    samerun_parallel_for(n, 1 << 15, lerp_addcmul_or_addcdiv_range, &job);
}

/* Square roots, each rounded once. The vector mathematics that torch may be built with rounds some of them
 * otherwise, by the maker of the processor. */
typedef struct {
    int is_double;
    const void *x;
    void *out;
} square_roots_job_t;

static void square_roots_range(void *square_roots_job, int64_t element_begin, int64_t element_end) {
    const square_roots_job_t *job = square_roots_job;
    if (job->is_double) {
        const double *x = job->x;
        double *out = job->out;
        for (int64_t i = element_begin; i < element_end; i++) out[i] = __builtin_sqrt(x[i]);
    } else {
        const float *x = job->x;
        float *out = job->out;
        for (int64_t i = element_begin; i < element_end; i++) out[i] = __builtin_sqrtf(x[i]);
    }
}

/* out = sqrt(x), of n floats or doubles. */
void samerun_square_roots(int is_double, const void *x, void *out, int64_t n) {
    square_roots_job_t job = {is_double, x, out};
    samerun_parallel_for(n, 8192, square_roots_range, &job);
}

/* Remainders of divisions: x - y trunc(x / y), which is exact, and that of the floored quotient, which rounds once. The
 * vector mathematics that torch is built with gives NaN where the quotient is large; its scalar code does not. */
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

REMAINDER(truncated_remainder32, LESS32, 0x1p24, 0x1p-24)
REMAINDER(truncated_remainder64, LESS64, 0x1p48, 0x1p-48)

typedef struct {
    int is_double, floored;
    const void *x, *y;
    void *out;
} remainders_job_t;

#define REMAINDERS(real, remainder_of)                                           \
    {                                                                            \
        const real *x = job->x, *y = job->y;                                     \
        real *out = job->out;                                                    \
        for (int64_t i = element_begin; i < element_end; i++) {                  \
            const real by = y[i], r = (real)remainder_of(x[i], by);              \
            out[i] = job->floored && r != 0 && (by < 0) != (r < 0) ? r + by : r; \
        }                                                                        \
    }

static void remainders_range(void *remainders_job, int64_t element_begin, int64_t element_end) {
    const remainders_job_t *job = remainders_job;
    if (job->is_double) REMAINDERS(double, truncated_remainder64)
    else REMAINDERS(float, truncated_remainder32)
}

/* out = the remainder of x by y, of n floats or doubles. `floored`: it has the sign of y. */
void samerun_remainders(int is_double, int floored, const void *x, const void *y, void *out, int64_t n) {
    remainders_job_t job = {is_double, floored, x, y, out};
    samerun_parallel_for(n, 4096, remainders_range, &job);
}
