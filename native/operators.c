/* The entries for Python of what is made of the kernels: arrays are float32 and contiguous. */
#include <stddef.h>

#include "kernels.h"
#include "pool.h"
#include "portable.h"

typedef struct {
    int what;
    const float *x, *y;
    float *out;
    int64_t n, per; /* of a row; how many values of out it makes */
} job_t;

static void pairs_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    samerun_kernels()->pair_function(job->what, job->x + begin, job->y + begin, job->out + begin, end - begin);
}

/* out = pow(x, y), atan2(x, y) or hypot(x, y) (kernels.h has the numbers). */
void samerun_pair_function(int function, const float *x, const float *y, float *out, int64_t n) {
    job_t job = {function, x, y, out, 0, 0};
    samerun_parallel(n, 1024, pairs_range, &job);
}

static void activations_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    const float *grad = job->y ? job->y + begin : NULL;
    samerun_kernels()->activation(job->what, job->x + begin, grad, job->out + begin, end - begin);
}

void samerun_activation(int activation, const float *x, const float *grad, float *out, int64_t n) {
    job_t job = {activation, x, grad, out, 0, 0};
    samerun_parallel(n, 4096, activations_range, &job);
}

static void rows_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    for (int64_t i = begin; i < end; i++)
        samerun_kernels()->row(job->what, job->x + i * job->n, job->y ? job->y + i * job->n : NULL,
                               job->out + i * job->per, job->n);
}

/* `rows` rows of n values each; `grad` for the backward ones. LOGSUMEXP makes one value of a row. */
void samerun_rows(int function, const float *x, const float *grad, float *out, int64_t rows, int64_t n) {
    job_t job = {function, x, grad, out, n, function == LOGSUMEXP ? 1 : n};
    samerun_parallel(rows, 1 + 8192 / (n + 1), rows_range, &job);
}
