/* One multiplication: C[i, j] = sum over k of A[i, k] * B[k, j] (+ bias), for each of some batches. */
#ifndef SAMERUN_GEMM_H
#define SAMERUN_GEMM_H

#include "gemm_kernels.h"
#include "status.h"

enum { SAMERUN_FEW_ROWS = 64 }; /* for which columns are not packed that lie in vectors */

static inline int64_t min_int64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ceil_divide(int64_t n, int64_t step) { return (n + step - 1) / step; }

typedef struct {
    int64_t batches, m, n, k;
    const void *a, *b;
    void *c;
    int64_t *a_batch, *b_batch, *c_batch; /* offsets of each batch */
    samerun_offset_table a_rows, a_k, b_k, b_columns, c_columns;
    int64_t c_row;
    int64_t *block_end; /* where each block of k ends, none longer than SAMERUN_BLOCK; NULL: after SAMERUN_BLOCK each */
    const uint64_t *tap_mask; /* NULL, or for each column a bit for each of the taps, number k % taps, that it meets */
    int64_t taps;
    int a_slack, b_slack; /* the memory may be read 64 bytes beyond its end */
    const void *bias; /* NULL, or added at the end: bias[batch * bias_batch + i * bias_row + j * bias_column] */
    int64_t bias_batch, bias_row, bias_column;
} samerun_gemm;

/* matmul.c says what the dimensions and strides are. */
samerun_status samerun_matmul(int is_double, const int64_t *dims_and_strides, const void *a, const void *b, void *c,
                              const void *bias_or_null);

/* Columns of a vector. */
int64_t samerun_gemm_vector_lanes(int is_double);

/* Multiply, if all the tables were `tables_allocated`, and free them. Done, or no memory. */
samerun_status samerun_run_gemm_and_free_tables(samerun_gemm *gemm, int is_double, int tables_allocated);

#endif
