/* mm, bmm, mv, dot and linear, for operands in any layout. */
#include "gemm.h"

static bool build_strided_offset_table(samerun_offset_table *table, int64_t size, int64_t stride) {
    if (!samerun_allocate_offset_table(table, size)) return 0;
    for (int64_t i = 0; i < size; i++) table->offset[i] = i * stride;
    samerun_fill_run_lengths(table);
    return 1;
}

/* dims_and_strides: batches, m, n, k, then the strides in elements: a's batch, row, k; b's batch, k, column; c's
 * batch, row, column; then bias's batch, row and column (bias may be NULL). is_double: float64, else float32. Done,
 * or no memory. */
samerun_status samerun_matmul(int is_double, const int64_t *dims_and_strides, const void *a, const void *b, void *c,
                              const void *bias_or_null) {
    int64_t m = dims_and_strides[1], n = dims_and_strides[2];
    const int64_t *a_strides = dims_and_strides + 4, *b_strides = dims_and_strides + 7,
                  *c_strides = dims_and_strides + 10, *bias_strides = dims_and_strides + 13;
    samerun_gemm gemm = {
        .batches = dims_and_strides[0], .m = m, .n = n, .k = dims_and_strides[3], .a = a, .b = b, .c = c};
    /* a * b == b * a: the longer side of the result lies along the vectors. */
    int transposed = n < 8 && m > n;
    int tables_made =
        samerun_build_strided_offsets(&gemm.a_batch, dims_and_strides[0], a_strides[0]) &&
        samerun_build_strided_offsets(&gemm.b_batch, dims_and_strides[0], b_strides[0]) &&
        samerun_build_strided_offsets(&gemm.c_batch, dims_and_strides[0], c_strides[0]) &&
        build_strided_offset_table(&gemm.a_rows, m, a_strides[1]) &&
        build_strided_offset_table(&gemm.a_k, dims_and_strides[3], a_strides[2]) &&
        build_strided_offset_table(&gemm.b_k, dims_and_strides[3], b_strides[1]) &&
        build_strided_offset_table(&gemm.b_columns, n, b_strides[2]) &&
        build_strided_offset_table(&gemm.c_columns, transposed ? m : n, transposed ? c_strides[1] : c_strides[2]);
    gemm.c_row = c_strides[1];
    gemm.bias = bias_or_null;
    gemm.bias_batch = bias_strides[0];
    gemm.bias_row = bias_strides[1];
    gemm.bias_column = bias_strides[2];
    if (transposed) {
        samerun_offset_table rows = gemm.a_rows, k = gemm.a_k;
        int64_t *batch = gemm.a_batch;
        gemm.a_rows = gemm.b_columns;
        gemm.a_k = gemm.b_k;
        gemm.b_columns = rows;
        gemm.b_k = k;
        gemm.a = b;
        gemm.b = a;
        gemm.a_batch = gemm.b_batch;
        gemm.b_batch = batch;
        gemm.m = n;
        gemm.n = m;
        gemm.c_row = c_strides[2];
        gemm.bias_row = bias_strides[2];
        gemm.bias_column = bias_strides[1];
    }
    return samerun_run_gemm_and_free_tables(&gemm, is_double, tables_made);
}
