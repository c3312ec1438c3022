/* Class R, one argument: the entry for Python. */
#include "functions/finish.h"

#include "kernels.h"
#include "pool.h"

typedef struct {
    int function;
    const float *x;
    float *y;
} job_t;

static void some(void *given, int64_t from, int64_t to) {
    const job_t *job = given;
    samerun_kernels()->function[job->function](job->x + from, job->y + from, to - from);
}

/* y = function(x) for n floats next to each other; y may be x. */
void samerun_function(int function, const float *x, float *y, int64_t n) {
    job_t job = {function, x, y};
    if (function >= 0 && function < FUNCTIONS) samerun_parallel(n, 4096, some, &job);
}

/* The name of function number i, NULL beyond the last. */
const char *samerun_function_name(int i) {
#define NAME_OF(name) #name,
    static const char *const names[] = {ALL_FUNCTIONS(NAME_OF)};
    return i < 0 || i >= FUNCTIONS ? 0 : names[i];
}
