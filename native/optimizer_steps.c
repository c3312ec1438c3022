/* The entries for Python of whole steps of optimizers, over all parameters. */
#include "optimizer_steps.h"

#include <stddef.h>

#include "kernels.h"
#include "thread_pool.h"

/* Whether some of these arrays of n floats share memory. */
static int some_overlap(const float *const *arrays, int count, int64_t n) {
    const uintptr_t bytes = (uintptr_t)n * sizeof(float);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const uintptr_t a = (uintptr_t)arrays[i], b = (uintptr_t)arrays[j];
            if (a != 0 && b != 0 && (a < b ? b - a : a - b) < bytes) return 1;
        }
    return 0;
}

static void adam_range(void *step, int64_t begin, int64_t end) {
    samerun_current_kernels()->adam_step(step, begin, end);
}

static void sgd_range_after_first_step(void *step, int64_t begin, int64_t end) {
    samerun_current_kernels()->sgd_step(step, begin, end);
}

/* One step for each of `count` parameters, in their order. 0, with nothing done, where arrays of one overlap. */
int samerun_adam_steps_unless_own_arrays_overlap(adam_step_t *steps, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const adam_step_t *s = steps + i;
        const float *arrays[] = {s->parameter, s->gradient, s->exp_avg, s->exp_avg_sq, s->max_exp_avg_sq};
        if (some_overlap(arrays, 5, s->n)) return 0;
    }
    for (int64_t i = 0; i < count; i++) samerun_parallel_for(steps[i].n, 1 << 14, adam_range, steps + i);
    return 1;
}

int samerun_sgd_steps_unless_overlapping(sgd_step_t *steps, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float *arrays[] = {steps[i].parameter, steps[i].gradient, steps[i].momentum_buffer};
        if (some_overlap(arrays, 3, steps[i].n)) return 0;
    }
    for (int64_t i = 0; i < count; i++)
        samerun_parallel_for(steps[i].n, 1 << 14, sgd_range_after_first_step, steps + i);
    return 1;
}
