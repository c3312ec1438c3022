/* The inner loops, compiled once for each level from kernels.inc; what lies around them chooses by kernels(). */
#ifndef SAMERUN_KERNELS_H
#define SAMERUN_KERNELS_H

#include <stdint.h>

enum { MOST_FUNCTIONS = 32 };

typedef struct {
    /* Class R (functions/finish.h); y may be x. */
    void (*function[MOST_FUNCTIONS])(const float *x, float *y, int64_t n);
    /* Class S over one block: 0 <= n <= SUM_BLOCK values next to each other. */
    float (*block_sum32)(const float *x, int64_t n);
    double (*block_sum64)(const double *x, int64_t n);
    float (*block_prod32)(const float *x, int64_t n);
    double (*block_prod64)(const double *x, int64_t n);
    /* The terms of a sum (sums.h); out may be x. */
    void (*terms32)(int term, const float *x, float center, float *out, int64_t n);
    void (*terms64)(int term, const double *x, double center, double *out, int64_t n);
    /* `rows` <= SUM_LANES rows of terms, row r at x + offset[r], added to lanes[r][columns] ... */
    void (*add_rows32)(int term, const float *x, const int64_t *offset, int64_t rows, int64_t columns,
                       const float *center, float *lanes);
    void (*add_rows64)(int term, const double *x, const int64_t *offset, int64_t rows, int64_t columns,
                       const double *center, double *lanes);
    /* ... and the lanes of each column to one. */
    void (*rows_to_one32)(int product, float *lanes, int64_t columns, float *out);
    void (*rows_to_one64)(int product, double *lanes, int64_t columns, double *out);
} kernels_t;

/* Those of the level in force. */
const kernels_t *samerun_kernels(void);

#endif
