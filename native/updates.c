/* Steps of optimizers on float32 arrays that lie in one piece: the entry for Python. */
#include "kernels.h"
#include "pool.h"

typedef struct {
    int update;
    float *x;
    const float *y, *z;
    float value;
} job_t;

static void update_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    samerun_current_kernels()->update(job->update, job->x + begin, job->y + begin, job->z + begin, job->value,
                                      end - begin);
}

/* x becomes x + (y - x) * value, x + (y * value) * z or x + (y * value) / z (kernels.h has the numbers). x may be one of
 * the others, but not overlap them otherwise. */
void samerun_optimizer_update(int update, float *x, const float *y, const float *z, float value, int64_t n) {
    job_t job = {update, x, y, z, value};
    samerun_parallel_for(n, 1 << 15, update_range, &job);
}
