/* Products of few rows, by columns whose k's lie side by side and need not be packed for it (product.c). */
#include "product_small.h"
#include "scratch.h"

enum {
    MOST_ROWS = 64,       /* for which columns are read as lines */
    FEWEST_COLUMNS = 24,
    LINES_AT_ONCE = 1024, /* whose results stay in the second cache */
    SHORTEST = 8          /* line */
};

/* The columns are read where they lie. The results pass through `found`, as they may lie anywhere. */
samerun_status samerun_multiply_unpacked_columns(const product_job_t *job, int64_t batch, int64_t column_begin,
                                                 int64_t column_end) {
    const samerun_matrix_product *product = job->product;
    const int64_t m = product->m, columns = column_end - column_begin;
    float *a = samerun_borrow_scratch(SCRATCH_PANELS, (size_t)(m * (product->k + columns)) * sizeof *a);
    float *found = a + m * product->k;
    if (a == NULL) return SAMERUN_NO_MEMORY;
    const float *from = (const float *)product->a + product->a_batch[batch];
    float *c = (float *)product->c + product->c_batch[batch];
    for (int64_t k = 0; k < product->k; k++)
        for (int64_t i = 0; i < m; i++) a[k * m + i] = from[product->a_rows.offset[i] + product->a_k.offset[k]];
    job->kernels->multiply_few_rows(a, (int)m,
                                    (const float *)product->b + product->b_batch[batch] + product->b_k.offset[0],
                                    product->b_columns.offset + column_begin, columns, product->k, found);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * product->c_row + product->c_columns.offset[column_begin + j]] = found[i * columns + j];
    samerun_release_scratch(SCRATCH_PANELS, a);
    return SAMERUN_DONE;
}

/* The result turned: each column is a row of tiles, read where it lies, and the rows are packed as columns. */
samerun_status samerun_multiply_transposed(const product_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                                           int64_t column_begin, int64_t column_end) {
    const samerun_matrix_product *product = job->product;
    const samerun_product_kernels *kernels = job->kernels;
    const size_t real = job->real;
    const int64_t m = row_end - row_begin, wide = ceil_divide(m, kernels->columns) * kernels->columns;
    const int64_t most = min_int64(LINES_AT_ONCE, column_end - column_begin),
                  depth_most = min_int64(product->k, SAMERUN_BLOCK);
    const size_t packed = ((size_t)(wide * depth_most) * real + 2 * LINE) / LINE * LINE;
    char *scratch = samerun_borrow_scratch(SCRATCH_PANELS, packed + (size_t)(most * wide) * real);
    if (scratch == NULL) return SAMERUN_NO_MEMORY;
    char *found = scratch + packed, *c = (char *)product->c + product->c_batch[batch] * (int64_t)real;
    const char *a = element_address(product->a, product->a_batch[batch], real),
               *b = element_address(product->b, product->b_batch[batch], real);
    for (int64_t start = column_begin; start < column_end; start += most) {
        const int64_t stop = min_int64(start + most, column_end);
        for (int64_t k = 0, end, number = 0; k < product->k; k = end, number++) {
            const int64_t depth = (end = k_block_end(product, k, number)) - k;
            for (int64_t i = 0; i < m; i += kernels->columns)
                kernels->pack_columns(scratch + (size_t)(i * depth) * real, a, &product->a_rows, row_begin + i,
                                      min_int64(kernels->columns, m - i), &product->a_k, k, depth, product->a_slack);
            for (int64_t j = start; j < stop; j += kernels->rows)
                for (int64_t i = 0; i < m; i += kernels->columns)
                    kernels->tile_of_unpacked_rows(
                        depth, b, product->b_columns.offset + j, product->b_k.offset + k,
                        scratch + (size_t)(i * depth) * real, found + (size_t)((j - start) * wide + i) * real, wide,
                        (int)min_int64(kernels->rows, stop - j), (int)min_int64(kernels->columns, m - i), k == 0);
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = start; j < stop; j++) {
                const int64_t to = (row_begin + i) * product->c_row + product->c_columns.offset[j],
                              from = (j - start) * wide + i;
                if (real == 4) ((float *)c)[to] = ((float *)found)[from];
                else ((double *)c)[to] = ((double *)found)[from];
            }
    }
    samerun_release_scratch(SCRATCH_PANELS, scratch);
    return SAMERUN_DONE;
}

int samerun_choose_product_algorithm(const product_job_t *job) {
    const samerun_matrix_product *product = job->product;
    const int64_t lanes = job->kernels->columns / SAMERUN_VECTORS;
    const int whole = product->block_end == NULL && product->k >= LINE && product->b_k.run[0] >= product->k;
    if (job->kernels->multiply_few_rows != NULL && product->m <= SAMERUN_THIN && whole) return BY_COLUMNS;
    const int filled = ceil_divide(product->m, lanes) * lanes * 7 <= product->m * 8; /* vectors of which most is used */
    const int turned =
        product->b_columns.run[0] < lanes && product->b_k.run[0] >= SHORTEST; /* if packed, columns would be */
    return product->m <= MOST_ROWS && product->n >= FEWEST_COLUMNS && filled && turned ? BY_LINES : BY_TILES;
}
