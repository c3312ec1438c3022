/* Products of few rows, by columns whose k's lie side by side and need not be packed for it (gemm.c). */
#include "gemm_small.h"
#include "scratch.h"

enum {
    MOST_ROWS = 64,       /* for which columns are read as lines */
    FEWEST_COLUMNS = 24,
    LINES_AT_ONCE = 1024, /* whose results stay in the second cache */
    SHORTEST = 8          /* line */
};

/* The columns are read where they lie. The results pass through `found`, as they may lie anywhere. */
samerun_status samerun_multiply_unpacked_columns_f32(const gemm_job_t *job, int64_t batch, int64_t column_begin,
                                                     int64_t column_end) {
    const samerun_gemm *gemm = job->gemm;
    const int64_t m = gemm->m, columns = column_end - column_begin;
    float *a = samerun_borrow_scratch(SCRATCH_PANELS, (size_t)(m * (gemm->k + columns)) * sizeof *a);
    float *found = a + m * gemm->k;
    if (a == NULL) return SAMERUN_NO_MEMORY;
    const float *from = (const float *)gemm->a + gemm->a_batch[batch];
    float *c = (float *)gemm->c + gemm->c_batch[batch];
    for (int64_t k = 0; k < gemm->k; k++)
        for (int64_t i = 0; i < m; i++) a[k * m + i] = from[gemm->a_rows.offset[i] + gemm->a_k.offset[k]];
    job->kernels->multiply_few_packed_rows(a, (int)m,
                                           (const float *)gemm->b + gemm->b_batch[batch] + gemm->b_k.offset[0],
                                           gemm->b_columns.offset + column_begin, columns, gemm->k, found);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * gemm->c_row + gemm->c_columns.offset[column_begin + j]] = found[i * columns + j];
    samerun_release_scratch(SCRATCH_PANELS, a);
    return SAMERUN_DONE;
}

/* The result turned: each column is a row of tiles, read where it lies, and the rows are packed as columns. */
samerun_status samerun_multiply_via_transposed_tiles(const gemm_job_t *job, int64_t batch, int64_t row_begin,
                                                     int64_t row_end, int64_t column_begin, int64_t column_end) {
    const samerun_gemm *gemm = job->gemm;
    const samerun_gemm_kernels *kernels = job->kernels;
    const size_t element_size = job->element_size;
    const int64_t m = row_end - row_begin, wide = ceil_divide(m, kernels->columns) * kernels->columns;
    const int64_t most = min_int64(LINES_AT_ONCE, column_end - column_begin),
                  depth_most = min_int64(gemm->k, SAMERUN_BLOCK);
    const size_t packed = ((size_t)(wide * depth_most) * element_size + 2 * LINE) / LINE * LINE;
    char *scratch = samerun_borrow_scratch(SCRATCH_PANELS, packed + (size_t)(most * wide) * element_size);
    if (scratch == NULL) return SAMERUN_NO_MEMORY;
    char *found = scratch + packed, *c = (char *)gemm->c + gemm->c_batch[batch] * (int64_t)element_size;
    const char *a = element_address(gemm->a, gemm->a_batch[batch], element_size),
               *b = element_address(gemm->b, gemm->b_batch[batch], element_size);
    for (int64_t start = column_begin; start < column_end; start += most) {
        const int64_t stop = min_int64(start + most, column_end);
        for (int64_t k = 0, end, number = 0; k < gemm->k; k = end, number++) {
            const int64_t depth = (end = k_block_end(gemm, k, number)) - k;
            for (int64_t i = 0; i < m; i += kernels->columns)
                kernels->pack_columns(scratch + (size_t)(i * depth) * element_size, a, &gemm->a_rows, row_begin + i,
                                      min_int64(kernels->columns, m - i), &gemm->a_k, k, depth, gemm->a_slack);
            for (int64_t j = start; j < stop; j += kernels->rows)
                for (int64_t i = 0; i < m; i += kernels->columns)
                    kernels->multiply_tile_unpacked_rows(depth, b, gemm->b_columns.offset + j, gemm->b_k.offset + k,
                                                         scratch + (size_t)(i * depth) * element_size,
                                                         found + (size_t)((j - start) * wide + i) * element_size, wide,
                                                         (int)min_int64(kernels->rows, stop - j),
                                                         (int)min_int64(kernels->columns, m - i), k == 0);
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = start; j < stop; j++) {
                const int64_t to = (row_begin + i) * gemm->c_row + gemm->c_columns.offset[j],
                              from = (j - start) * wide + i;
                if (element_size == 4) ((float *)c)[to] = ((float *)found)[from];
                else ((double *)c)[to] = ((double *)found)[from];
            }
    }
    samerun_release_scratch(SCRATCH_PANELS, scratch);
    return SAMERUN_DONE;
}

int samerun_choose_gemm_algorithm(const gemm_job_t *job) {
    const samerun_gemm *gemm = job->gemm;
    const int64_t lanes = job->kernels->columns / SAMERUN_VECTORS;
    const int whole = gemm->block_end == NULL && gemm->k >= LINE && gemm->b_k.run[0] >= gemm->k;
    if (job->kernels->multiply_few_packed_rows != NULL && gemm->m <= SAMERUN_MOST_FEW_ROWS && whole) return BY_COLUMNS;
    const int filled = ceil_divide(gemm->m, lanes) * lanes * 7 <= gemm->m * 8; /* vectors of which most is used */
    const int turned = gemm->b_columns.run[0] < lanes && gemm->b_k.run[0] >= SHORTEST; /* if packed, columns would be */
    return gemm->m <= MOST_ROWS && gemm->n >= FEWEST_COLUMNS && filled && turned ? BY_LINES : BY_TILES;
}
