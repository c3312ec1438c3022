/* Products of few rows, by columns whose k's lie side by side and need not be packed for it (product.c). */
#include "product_job.h"
#include "scratch.h"

enum {
    MOST_ROWS = 64,       /* for which columns are read as lines */
    FEWEST_COLUMNS = 24,
    LINES_AT_ONCE = 1024, /* whose results stay in the second cache */
    SHORTEST = 8          /* line */
};

/* The columns are read where they lie. The results pass through `found`, as they may lie anywhere. */
int samerun_product_by_columns(const job_t *job, int64_t batch, int64_t column, int64_t column_end) {
    const samerun_multiplication *it = job->it;
    const int64_t m = it->m, columns = column_end - column;
    float *a = samerun_scratch(SCRATCH_PANELS, (size_t)(m * (it->k + columns)) * sizeof *a), *found = a + m * it->k;
    if (a == NULL) return 0;
    const float *from = (const float *)it->a + it->a_batch[batch];
    float *c = (float *)it->c + it->c_batch[batch];
    for (int64_t k = 0; k < it->k; k++)
        for (int64_t i = 0; i < m; i++) a[k * m + i] = from[it->a_rows.offset[i] + it->a_k.offset[k]];
    job->kernels->thin(a, (int)m, (const float *)it->b + it->b_batch[batch] + it->b_k.offset[0],
                       it->b_columns.offset + column, columns, it->k, found);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * it->c_row + it->c_columns.offset[column + j]] = found[i * columns + j];
    samerun_scratch_done(SCRATCH_PANELS, a);
    return 1;
}

/* The result turned: each column is a row of tiles, read where it lies, and the rows are packed as columns. */
int samerun_product_by_lines(const job_t *job, int64_t batch, int64_t row, int64_t row_end, int64_t column,
                             int64_t column_end) {
    const samerun_multiplication *it = job->it;
    const samerun_product_kernels *kernels = job->kernels;
    const size_t real = job->real;
    const int64_t m = row_end - row, wide = pieces_of(m, kernels->columns) * kernels->columns;
    const int64_t most = least(LINES_AT_ONCE, column_end - column), depth_most = least(it->k, SAMERUN_BLOCK);
    const size_t packed = ((size_t)(wide * depth_most) * real + 2 * LINE) / LINE * LINE;
    char *scratch = samerun_scratch(SCRATCH_PANELS, packed + (size_t)(most * wide) * real);
    if (scratch == NULL) return 0;
    char *found = scratch + packed, *c = (char *)it->c + it->c_batch[batch] * (int64_t)real;
    const char *a = at(it->a, it->a_batch[batch], real), *b = at(it->b, it->b_batch[batch], real);
    for (int64_t start = column; start < column_end; start += most) {
        const int64_t stop = least(start + most, column_end);
        for (int64_t k = 0, end, number = 0; k < it->k; k = end, number++) {
            const int64_t depth = (end = block_end(it, k, number)) - k;
            for (int64_t i = 0; i < m; i += kernels->columns)
                kernels->pack_columns(scratch + (size_t)(i * depth) * real, a, &it->a_rows, row + i,
                                      least(kernels->columns, m - i), &it->a_k, k, depth, it->a_slack);
            for (int64_t j = start; j < stop; j += kernels->rows)
                for (int64_t i = 0; i < m; i += kernels->columns)
                    kernels->tile_of_lines(
                        depth, b, it->b_columns.offset + j, it->b_k.offset + k, scratch + (size_t)(i * depth) * real,
                        found + (size_t)((j - start) * wide + i) * real, wide, (int)least(kernels->rows, stop - j),
                        (int)least(kernels->columns, m - i), k == 0);
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = start; j < stop; j++) {
                const int64_t to = (row + i) * it->c_row + it->c_columns.offset[j], from = (j - start) * wide + i;
                if (real == 4) ((float *)c)[to] = ((float *)found)[from];
                else ((double *)c)[to] = ((double *)found)[from];
            }
    }
    samerun_scratch_done(SCRATCH_PANELS, scratch);
    return 1;
}

int samerun_product_way(const job_t *job) {
    const samerun_multiplication *it = job->it;
    const int64_t lanes = job->kernels->columns / SAMERUN_VECTORS;
    const int whole = it->block_end == NULL && it->k >= LINE && it->b_k.run[0] >= it->k;
    if (job->kernels->thin != NULL && it->m <= SAMERUN_THIN && whole) return BY_COLUMNS;
    const int filled = pieces_of(it->m, lanes) * lanes * 7 <= it->m * 8; /* vectors of which most is used */
    const int turned = it->b_columns.run[0] < lanes && it->b_k.run[0] >= SHORTEST; /* if packed, columns would be */
    return it->m <= MOST_ROWS && it->n >= FEWEST_COLUMNS && filled && turned ? BY_LINES : BY_TILES;
}
