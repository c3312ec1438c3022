/* Tables of offsets along one dimension of an operand: what a product knows of a layout. */
#ifndef SAMERUN_AXIS_H
#define SAMERUN_AXIS_H

#include <stdint.h>

/* Offsets along one dimension; run[i] is how many entries from i on ascend by one. */
typedef struct {
    int64_t *offset;
    int32_t *run;
    int64_t size;
} samerun_axis;

/* Room for `size` offsets and runs. 0 without memory. */
int samerun_axis_new(samerun_axis *axis, int64_t size);
/* Fill in the runs once the offsets stand. */
void samerun_axis_runs(samerun_axis *axis);

void samerun_axis_free(samerun_axis *axis);

/* size entries 0, stride, 2 stride, ...; 0 without memory. */
int samerun_steps(int64_t **to, int64_t size, int64_t stride);

#endif
