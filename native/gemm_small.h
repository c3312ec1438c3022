/* Products of few rows, whose columns are not packed. */
#ifndef SAMERUN_GEMM_SMALL_H
#define SAMERUN_GEMM_SMALL_H

#include "gemm_job.h"

/* BY_COLUMNS: few rows by columns that lie side by side. BY_LINES: some more. BY_TILES: any. */
int samerun_choose_gemm_algorithm(const gemm_job_t *job);
/* A piece of the product, without bias. Done, or no memory. */
samerun_status samerun_multiply_unpacked_columns_f32(const gemm_job_t *job, int64_t batch, int64_t column_begin,
                                                     int64_t column_end);
samerun_status samerun_multiply_via_transposed_tiles(const gemm_job_t *job, int64_t batch, int64_t row_begin,
                                                     int64_t row_end, int64_t column_begin, int64_t column_end);

#endif
