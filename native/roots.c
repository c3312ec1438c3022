/* Square roots, each rounded once. The vector mathematics that torch may be built with rounds square_roots_range of them otherwise,
 * by the maker of the processor. */
#include <stdint.h>

#include "pool.h"

typedef struct {
    int is_double;
    const void *x;
    void *out;
} job_t;

static void square_roots_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    if (job->is_double) {
        const double *x = job->x;
        double *out = job->out;
        for (int64_t i = begin; i < end; i++) out[i] = __builtin_sqrt(x[i]);
    } else {
        const float *x = job->x;
        float *out = job->out;
        for (int64_t i = begin; i < end; i++) out[i] = __builtin_sqrtf(x[i]);
    }
}

/* out = sqrt(x), of n floats or doubles. */
void samerun_square_roots(int is_double, const void *x, void *out, int64_t n) {
    job_t job = {is_double, x, out};
    samerun_parallel_for(n, 8192, square_roots_range, &job);
}
