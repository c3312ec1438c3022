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

static void some_pairs(void *given, int64_t from, int64_t to) {
    const job_t *job = given;
    samerun_kernels()->pair_function(job->what, job->x + from, job->y + from, job->out + from, to - from);
}

/* out = pow(x, y), atan2(x, y) or hypot(x, y) (kernels.h has the numbers). */
void samerun_pair_function(int function, const float *x, const float *y, float *out, int64_t n) {
    job_t job = {function, x, y, out, 0, 0};
    samerun_parallel(n, 1024, some_pairs, &job);
}

static void some_activations(void *given, int64_t from, int64_t to) {
    const job_t *job = given;
    const float *grad = job->y ? job->y + from : NULL;
    samerun_kernels()->activation(job->what, job->x + from, grad, job->out + from, to - from);
}

void samerun_activation(int activation, const float *x, const float *grad, float *out, int64_t n) {
    job_t job = {activation, x, grad, out, 0, 0};
    samerun_parallel(n, 4096, some_activations, &job);
}

static void some_rows(void *given, int64_t from, int64_t to) {
    const job_t *job = given;
    for (int64_t i = from; i < to; i++)
        samerun_kernels()->row(job->what, job->x + i * job->n, job->y ? job->y + i * job->n : NULL,
                               job->out + i * job->per, job->n);
}

/* `rows` rows of n values each; `grad` for the backward ones. LOGSUMEXP makes one value of a row. */
void samerun_rows(int function, const float *x, const float *grad, float *out, int64_t rows, int64_t n) {
    job_t job = {function, x, grad, out, n, function == LOGSUMEXP ? 1 : n};
    samerun_parallel(rows, 1 + 8192 / (n + 1), some_rows, &job);
}
