/* Steps of optimizers on float32 arrays that lie in one piece: the entry for Python. */
#include "kernels.h"
#include "pool.h"

typedef struct {
    int update;
    float *x;
    const float *y, *z;
    float value;
} job_t;

static void some(void *given, int64_t from, int64_t to) {
    const job_t *job = given;
    samerun_kernels()->update(job->update, job->x + from, job->y + from, job->z + from, job->value, to - from);
}

/* x becomes x + (y - x) * value, x + (y * value) * z or x + (y * value) / z (kernels.h has the numbers). x may be one of
 * the others, but not overlap them otherwise. */
void samerun_update(int update, float *x, const float *y, const float *z, float value, int64_t n) {
    job_t job = {update, x, y, z, value};
    samerun_parallel(n, 1 << 15, some, &job);
}
