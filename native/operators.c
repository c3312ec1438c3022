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

typedef struct {
    norm_t norm;
    int64_t groups; /* rows i, i + groups, ... share weights */
    const float *x, *grad, *mean_given, *rstd_given;
    float *out, *mean, *rstd, *terms;
} norm_job_t;

static norm_t of_row(const norm_job_t *job, int64_t i) {
    norm_t norm = job->norm;
    const int64_t skipped = i % job->groups * (norm.n / norm.inner);
    if (norm.weight) norm.weight += skipped;
    if (norm.bias) norm.bias += skipped;
    return norm;
}

static void some_norms(void *given, int64_t from, int64_t to) {
    const norm_job_t *job = given;
    for (int64_t i = from; i < to; i++) {
        const norm_t norm = of_row(job, i);
        const int64_t at = i * norm.n;
        samerun_kernels()->norm_row(&norm, job->x + at, job->out + at, job->mean + i, job->rstd + i);
    }
}

/* Rows of n values: value j of row i has the weight number (i % groups * n + j) / inner. */
void samerun_norm(int rms, float eps, const float *x, const float *weight, const float *bias, float *out, float *mean,
                  float *rstd, int64_t rows, int64_t n, int64_t groups, int64_t inner) {
    norm_job_t job = {.norm = {rms, eps, n, inner, weight, bias}, .groups = groups, .x = x, .out = out,
                      .mean = mean, .rstd = rstd};
    samerun_parallel(rows, 1 + 8192 / (n + 1), some_norms, &job);
}

static void some_norms_backward(void *given, int64_t from, int64_t to) {
    const norm_job_t *job = given;
    for (int64_t i = from; i < to; i++) {
        const norm_t norm = of_row(job, i);
        const int64_t at = i * norm.n;
        samerun_kernels()->norm_row_backward(&norm, job->x + at, job->grad + at, job->mean_given[i],
                                             job->rstd_given[i], job->out + at, job->terms ? job->terms + at : NULL);
    }
}

/* `terms`: NULL, or room for the terms that sum to the gradient of the weight. */
void samerun_norm_backward(int rms, const float *x, const float *grad, const float *weight, const float *mean,
                           const float *rstd, float *out, float *terms, int64_t rows, int64_t n, int64_t groups,
                           int64_t inner) {
    norm_job_t job = {.norm = {rms, 0, n, inner, weight, NULL}, .groups = groups, .x = x, .grad = grad,
                      .mean_given = mean, .rstd_given = rstd, .out = out, .terms = terms};
    samerun_parallel(rows, 1 + 8192 / (n + 1), some_norms_backward, &job);
}
