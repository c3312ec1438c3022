/* mm, bmm, mv, dot and linear, for operands in any layout. */
#include "multiply.h"

static int strided(samerun_axis *axis, int64_t size, int64_t stride) {
    if (!samerun_axis_new(axis, size)) return 0;
    for (int64_t i = 0; i < size; i++) axis->offset[i] = i * stride;
    samerun_axis_runs(axis);
    return 1;
}

/* dims: batches, m, n, k, then the strides in elements: a's batch, row, k; b's batch, k, column; c's batch, row,
 * column; then bias's batch, row and column (bias may be NULL). is_double: float64, else float32.
 * Returns 0, or -1 without memory. */
int samerun_matmul(int is_double, const int64_t *dims, const void *a, const void *b, void *c, const void *bias) {
    int64_t m = dims[1], n = dims[2];
    const int64_t *as = dims + 4, *bs = dims + 7, *cs = dims + 10, *add = dims + 13;
    samerun_multiplication it = {.batches = dims[0], .m = m, .n = n, .k = dims[3], .a = a, .b = b, .c = c};
    /* a * b == b * a: the longer side of the result lies along the vectors. */
    int turned = n < 8 && m > n;
    int made = samerun_steps(&it.a_batch, dims[0], as[0]) && samerun_steps(&it.b_batch, dims[0], bs[0]) &&
               samerun_steps(&it.c_batch, dims[0], cs[0]) && strided(&it.a_rows, m, as[1]) &&
               strided(&it.a_k, dims[3], as[2]) && strided(&it.b_k, dims[3], bs[1]) &&
               strided(&it.b_columns, n, bs[2]) && strided(&it.c_columns, turned ? m : n, turned ? cs[1] : cs[2]);
    it.c_row = cs[1];
    it.bias = bias;
    it.bias_batch = add[0];
    it.bias_row = add[1];
    it.bias_column = add[2];
    if (turned) {
        samerun_axis rows = it.a_rows, k = it.a_k;
        int64_t *batch = it.a_batch;
        it.a_rows = it.b_columns;
        it.a_k = it.b_k;
        it.b_columns = rows;
        it.b_k = k;
        it.a = b;
        it.b = a;
        it.a_batch = it.b_batch;
        it.b_batch = batch;
        it.m = n;
        it.n = m;
        it.c_row = cs[2];
        it.bias_row = add[2];
        it.bias_column = add[1];
    }
    return samerun_multiply_and_free(&it, is_double, made);
}
