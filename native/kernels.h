/* The inner loops, compiled once for each level from kernels.inc; what lies around them chooses by kernels(). */
#ifndef SAMERUN_KERNELS_H
#define SAMERUN_KERNELS_H

#include <stdint.h>

typedef struct {
    /* Class S over one block: 0 <= n <= SUM_BLOCK values next to each other. */
    float (*block_sum32)(const float *x, int64_t n);
    double (*block_sum64)(const double *x, int64_t n);
    float (*block_prod32)(const float *x, int64_t n);
    double (*block_prod64)(const double *x, int64_t n);
} kernels_t;

/* Those of the level in force. */
const kernels_t *samerun_kernels(void);

#endif
