/* mm, bmm, mv, dot and linear, for operands in any layout. */
#include "product.h"

static int fill_strided_table(samerun_offset_table *axis, int64_t size, int64_t stride) {
    if (!samerun_allocate_offset_table(axis, size)) return 0;
    for (int64_t i = 0; i < size; i++) axis->offset[i] = i * stride;
    samerun_find_runs(axis);
    return 1;
}

/* dims: batches, m, n, k, then the strides in elements: a's batch, row, k; b's batch, k, column; c's batch, row,
 * column; then bias's batch, row and column (bias may be NULL). is_double: float64, else float32.
 * Done, or no memory. */
samerun_status samerun_matmul(int is_double, const int64_t *dims, const void *a, const void *b, void *c,
                              const void *bias) {
    int64_t m = dims[1], n = dims[2];
    const int64_t *as = dims + 4, *bs = dims + 7, *cs = dims + 10, *add = dims + 13;
    samerun_matrix_product product = {.batches = dims[0], .m = m, .n = n, .k = dims[3], .a = a, .b = b, .c = c};
    /* a * b == b * a: the longer side of the result lies along the vectors. */
    int transposed = n < 8 && m > n;
    int tables_made =
        samerun_allocate_strided_offsets(&product.a_batch, dims[0], as[0]) &&
        samerun_allocate_strided_offsets(&product.b_batch, dims[0], bs[0]) &&
        samerun_allocate_strided_offsets(&product.c_batch, dims[0], cs[0]) &&
        fill_strided_table(&product.a_rows, m, as[1]) && fill_strided_table(&product.a_k, dims[3], as[2]) &&
        fill_strided_table(&product.b_k, dims[3], bs[1]) && fill_strided_table(&product.b_columns, n, bs[2]) &&
        fill_strided_table(&product.c_columns, transposed ? m : n, transposed ? cs[1] : cs[2]);
    product.c_row = cs[1];
    product.bias = bias;
    product.bias_batch = add[0];
    product.bias_row = add[1];
    product.bias_column = add[2];
    if (transposed) {
        samerun_offset_table rows = product.a_rows, k = product.a_k;
        int64_t *batch = product.a_batch;
        product.a_rows = product.b_columns;
        product.a_k = product.b_k;
        product.b_columns = rows;
        product.b_k = k;
        product.a = b;
        product.b = a;
        product.a_batch = product.b_batch;
        product.b_batch = batch;
        product.m = n;
        product.n = m;
        product.c_row = cs[2];
        product.bias_row = add[2];
        product.bias_column = add[1];
    }
    return samerun_multiply_and_free_tables(&product, is_double, tables_made);
}
