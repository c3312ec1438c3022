/* Class R, one argument: the entry for Python. */
#include "functions/finish.h"

#include "kernels.h"
#include "pool.h"

typedef struct {
    int function;
    const float *x;
    float *y;
} job_t;

static void map_function_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    samerun_current_kernels()->function[job->function](job->x + begin, job->y + begin, end - begin);
}

/* y = function(x) for n floats next to each other; y may be x. */
void samerun_map_function(int function, const float *x, float *y, int64_t n) {
    job_t job = {function, x, y};
    if (function >= 0 && function < FUNCTIONS) samerun_parallel_for(n, 4096, map_function_range, &job);
}

/* The name of function number i, NULL beyond the last. */
const char *samerun_function_name(int i) {
#define NAME_OF(name) #name,
    static const char *const names[] = {ALL_FUNCTIONS(NAME_OF)};
    return i < 0 || i >= FUNCTIONS ? 0 : names[i];
}
