/* The entries for Python of what is made of the kernels: arrays are float32 and contiguous. */
#include <stddef.h>

#include "kernels.h"
#include "pool.h"
#include "portable.h"

typedef struct {
    int function;
    const float *x, *y;
    float *out;
    int64_t n, per; /* of a row; how many values of out it makes */
} job_t;

static void map_pair_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    samerun_current_kernels()->pair_function(job->function, job->x + begin, job->y + begin, job->out + begin,
                                             end - begin);
}

/* out = pow(x, y), atan2(x, y) or hypot(x, y) (kernels.h has the numbers). */
void samerun_map_pair_function(int function, const float *x, const float *y, float *out, int64_t n) {
    job_t job = {function, x, y, out, 0, 0};
    samerun_parallel_for(n, 1024, map_pair_range, &job);
}

static void map_activation_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    const float *grad = job->y ? job->y + begin : NULL;
    samerun_current_kernels()->activation(job->function, job->x + begin, grad, job->out + begin, end - begin);
}

void samerun_map_activation(int activation, const float *x, const float *grad, float *out, int64_t n) {
    job_t job = {activation, x, grad, out, 0, 0};
    samerun_parallel_for(n, 4096, map_activation_range, &job);
}

static void apply_row_function_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    for (int64_t i = begin; i < end; i++)
        samerun_current_kernels()->row_function(job->function, job->x + i * job->n, job->y ? job->y + i * job->n : NULL,
                                                job->out + i * job->per, job->n);
}

/* `rows` rows of n values each; `grad` for the backward ones. LOGSUMEXP makes one value of a row. */
void samerun_softmax_family_rows(int function, const float *x, const float *grad, float *out, int64_t rows, int64_t n) {
    job_t job = {function, x, grad, out, n, function == LOGSUMEXP ? 1 : n};
    samerun_parallel_for(rows, 1 + 8192 / (n + 1), apply_row_function_range, &job);
}
