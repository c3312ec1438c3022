/* Products of matrices in blocks of 256 k: `samerun_run_gemm_and_free_tables` runs one on the pool.
 *
 * Matrices in any layout, unfolded images and gradients of convolutions are all read through two tables of offsets, so
 * that one driver keeps one order of operations for all (decision 0021).
 *
 * The result is cut into regions; each is computed by one thread from start to end, so no order of
 * additions depends on threads, on the cut or on the instruction set.
 */
#include "gemm_panel.h"

#include <stdlib.h>
#include <string.h>

#include "simd_level.h"
#include "thread_pool.h"
#include "gemm_small.h"
#include "scratch.h"

enum {
    ROWS_AT_ONCE = 128,      /* packed rows that stay in the second cache beside packed columns ... */
    ROWS_ALONE = 384,        /* ... and beside one panel of these */
    COLUMNS_AT_ONCE = 1008,  /* packed columns; a multiple of every tile's width */
    RESIDENT = 448 << 10,    /* bytes of packed rows, all k, up to which columns are packed once and dropped */
    SMALL = 1 << 20,         /* products of numbers that are not worth waking a thread for */
    /* How many products take as long as packing one number: alone, or together with its neighbours. */
    PACK_COST_STRIDED = 16,
    PACK_COST_CONTIGUOUS = 6
};

/* Prefetch what lies at both ends of each run. */
static void prefetch_row_runs_for_write(const char *row, const samerun_offset_table *column_offsets,
                                        int64_t column_begin, int64_t columns, size_t element_size) {
    for (int64_t j = 0, run; j < columns; j += run) {
        run = min_int64(column_offsets->run[column_begin + j], columns - j);
        const char *from = row + column_offsets->offset[column_begin + j] * (int64_t)element_size,
                   *to = from + run * (int64_t)element_size - 1;
        for (__builtin_prefetch(to, 1); from < to; from += LINE) __builtin_prefetch(from, 1);
    }
}

/* One tile of one block of k. Where the result's columns do not lie side by side, it goes through `edge_tile`. */
static void compute_tile_of_k_block(const gemm_job_t *job, const char *packed_a, const panel_t *panel, char *c_base,
                                    int64_t row_begin, int64_t rows, int64_t column_begin, int64_t columns,
                                    int overwrite, char *edge_tile) {
    const samerun_gemm *gemm = job->gemm;
    const samerun_offset_table *column_offsets = &gemm->c_columns;
    const int64_t width = job->kernels->columns;
    const size_t element_size = job->element_size;
    const int is_contiguous = column_offsets->run[column_begin] >= columns;
    char *to = is_contiguous
                   ? c_base + (row_begin * gemm->c_row + column_offsets->offset[column_begin]) * (int64_t)element_size
                   : edge_tile;
    const int64_t stride = is_contiguous ? gemm->c_row : width;
    const int overwrite_tile = is_contiguous ? overwrite : 1;
    if (!is_contiguous) /* else the tile asks for it */
        for (int64_t i = 0; i < rows; i++)
            prefetch_row_runs_for_write(c_base + (row_begin + i) * gemm->c_row * (int64_t)element_size, column_offsets,
                                        column_begin, columns, element_size);
    samerun_multiply_panel_tile(job, panel, packed_a, to, stride, rows, columns, overwrite_tile);
    if (is_contiguous) return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0, run; j < columns; j += run) {
            run = min_int64(column_offsets->run[column_begin + j], columns - j);
            char *c = c_base + ((row_begin + i) * gemm->c_row + column_offsets->offset[column_begin + j]) *
                                   (int64_t)element_size;
            const char *part = edge_tile + (i * width + j) * (int64_t)element_size;
            if (overwrite) memcpy(c, part, (size_t)run * element_size);
            else if (element_size == 4)
                for (int64_t q = 0; q < run; q++) ((float *)c)[q] += ((const float *)part)[q];
            else
                for (int64_t q = 0; q < run; q++) ((double *)c)[q] += ((const double *)part)[q];
        }
}

static void add_bias_to_region(const gemm_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                               int64_t column_begin, int64_t column_end) {
    const samerun_gemm *gemm = job->gemm;
    char *c_base = (char *)gemm->c + gemm->c_batch[batch] * (int64_t)job->element_size;
    for (int64_t i = row_begin; i < row_end; i++)
        for (int64_t j = column_begin; j < column_end;) {
            int64_t run = min_int64(gemm->c_columns.run[j], column_end - j);
            char *c = c_base + (i * gemm->c_row + gemm->c_columns.offset[j]) * (int64_t)job->element_size;
            int64_t from = gemm->bias_batch * batch + gemm->bias_row * i + gemm->bias_column * j;
            if (job->element_size == 4) {
                float *to = (float *)c;
                const float *bias = (const float *)gemm->bias + from;
                if (gemm->bias_column == 0)
                    for (int64_t q = 0; q < run; q++) to[q] += bias[0];
                else
                    for (int64_t q = 0; q < run; q++) to[q] += bias[q * gemm->bias_column];
            } else {
                double *to = (double *)c;
                const double *bias = (const double *)gemm->bias + from;
                for (int64_t q = 0; q < run; q++) to[q] += bias[q * gemm->bias_column];
            }
            j += run;
        }
}

/* Few rows are taken at once: then columns need not be kept. */
static int64_t choose_packed_row_count(int64_t region_rows) {
    return region_rows <= ROWS_ALONE ? region_rows : ROWS_AT_ONCE;
}

/* Parts of about one size, so that no part is a sliver for which all rows are packed again. */
static int64_t choose_packed_column_count(const gemm_job_t *job, int64_t region_rows, int64_t region_columns) {
    const int64_t wide = job->kernels->columns;
    const int64_t parts = region_rows <= ROWS_ALONE ? 1 : (region_columns + COLUMNS_AT_ONCE / 2) / COLUMNS_AT_ONCE;
    return ceil_divide(ceil_divide(region_columns, parts > 0 ? parts : 1), wide) * wide;
}

/* Whether from `column_begin` on there is a whole tile of which each vector's columns lie side by side, and where. */
static int try_find_contiguous_vector_offsets(const gemm_job_t *job, int64_t column_begin, int64_t column_end,
                                              int64_t *vector_offsets) {
    const samerun_offset_table *across = &job->gemm->b_columns;
    const int64_t lanes = job->kernels->columns / SAMERUN_VECTORS;
    if (samerun_next_panel_width(job, column_begin, column_end) < job->kernels->columns ||
        !samerun_column_meets_all_taps(job, column_begin))
        return 0;
    for (int v = 0; v < SAMERUN_VECTORS; v++, column_begin += lanes) {
        if (across->run[column_begin] < lanes) return 0;
        vector_offsets[v] = across->offset[column_begin];
    }
    return 1;
}

/* All k of the rows are packed once; then the columns go by, one panel after the other. */
static void multiply_region_with_resident_rows(const gemm_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                                               int64_t column_begin, int64_t column_end, char *packed_a, char *packed_b,
                                               char *edge_tile) {
    const samerun_gemm *gemm = job->gemm;
    const samerun_gemm_kernels *kernels = job->kernels;
    const char *a = element_address(gemm->a, gemm->a_batch[batch], job->element_size);
    const char *b = element_address(gemm->b, gemm->b_batch[batch], job->element_size);
    char *c = (char *)gemm->c + gemm->c_batch[batch] * (int64_t)job->element_size;
    int64_t height = ceil_divide(row_end - row_begin, kernels->rows) * kernels->rows;
    for (int64_t k = 0, end, number = 0; k < gemm->k; k = end, number++) {
        int64_t depth = (end = k_block_end(gemm, k, number)) - k;
        char *block = packed_a + (size_t)(k * height) * job->element_size;
        for (int64_t i = row_begin; i < row_end; i += kernels->rows)
            kernels->pack_rows(block + (size_t)((i - row_begin) * depth) * job->element_size, a, &gemm->a_rows, i,
                               min_int64(kernels->rows, row_end - i), &gemm->a_k, k, depth, gemm->a_slack);
    }
    const int few = row_end - row_begin <= SAMERUN_FEW_ROWS;
    for (int64_t j = column_begin, columns; j < column_end; j += columns) {
        columns = samerun_next_panel_width(job, j, column_end);
        int64_t at[SAMERUN_VECTORS], next[SAMERUN_VECTORS];
        const int in_place = few && try_find_contiguous_vector_offsets(job, j, column_end, at);
        const int more = in_place && try_find_contiguous_vector_offsets(job, j + columns, column_end, next);
        panel_t panel;
        panel.packed = in_place ? NULL : packed_b, panel.base = b, panel.at = at;
        for (int64_t k = 0, end, number = 0; k < gemm->k; k = end, number++) {
            int64_t depth = (end = k_block_end(gemm, k, number)) - k;
            const char *block = packed_a + (size_t)(k * height) * job->element_size;
            samerun_set_up_panel(job, b, j, columns, k, depth, in_place ? NULL : packed_b, &panel);
            for (int64_t i = row_begin; i < row_end; i += kernels->rows) {
                panel.next = more && i == row_begin ? next : NULL; /* asked for once */
                compute_tile_of_k_block(job, block + (size_t)((i - row_begin) * depth) * job->element_size, &panel, c,
                                        i, min_int64(kernels->rows, row_end - i), j, columns, k == 0, edge_tile);
            }
        }
    }
}

static void multiply_region_in_k_blocks(const gemm_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                                        int64_t column_begin, int64_t column_end, char *packed_a, char *packed_b,
                                        char *edge_tile) {
    const samerun_gemm *gemm = job->gemm;
    const samerun_gemm_kernels *kernels = job->kernels;
    const char *a = element_address(gemm->a, gemm->a_batch[batch], job->element_size);
    const char *b = element_address(gemm->b, gemm->b_batch[batch], job->element_size);
    char *c = (char *)gemm->c + gemm->c_batch[batch] * (int64_t)job->element_size;
    const int64_t width = choose_packed_column_count(job, row_end - row_begin, column_end - column_begin),
                  high = choose_packed_row_count(row_end - row_begin);
    panel_t panel;
    for (int64_t start = column_begin; start < column_end; start += width) {
        int64_t stop = min_int64(start + width, column_end);
        for (int64_t k = 0, end, number = 0; k < gemm->k; k = end, number++) {
            int64_t depth = (end = k_block_end(gemm, k, number)) - k;
            for (int64_t top = row_begin; top < row_end; top += high) {
                int64_t bottom = min_int64(top + high, row_end);
                for (int64_t i = top; i < bottom; i += kernels->rows)
                    kernels->pack_rows(packed_a + (size_t)((i - top) * depth) * job->element_size, a, &gemm->a_rows, i,
                                       min_int64(kernels->rows, bottom - i), &gemm->a_k, k, depth, gemm->a_slack);
                char *packed = packed_b;
                for (int64_t j = start, columns; j < stop; j += columns) {
                    columns = samerun_next_panel_width(job, j, stop);
                    panel.packed = packed;
                    samerun_set_up_panel(job, b, j, columns, k, depth, top == row_begin ? packed : NULL, &panel);
                    for (int64_t i = top; i < bottom; i += kernels->rows)
                        compute_tile_of_k_block(job, packed_a + (size_t)((i - top) * depth) * job->element_size, &panel,
                                                c, i, min_int64(kernels->rows, bottom - i), j, columns, k == 0,
                                                edge_tile);
                    if (high < row_end - row_begin)
                        packed += (size_t)(kernels->columns * depth) * job->element_size; /* kept */
                }
            }
        }
    }
}

static void compute_result_region(gemm_job_t *job, int64_t region_index) {
    const samerun_gemm *gemm = job->gemm;
    const samerun_gemm_kernels *kernels = job->kernels;
    int64_t batch = region_index / (job->row_regions * job->column_regions);
    int64_t rest = region_index % (job->row_regions * job->column_regions);
    int64_t row_begin = rest / job->column_regions * job->row_step,
            column_begin = rest % job->column_regions * job->column_step;
    int64_t row_end = min_int64(row_begin + job->row_step, gemm->m),
            column_end = min_int64(column_begin + job->column_step, gemm->n);
    if (job->algorithm != BY_TILES) {
        const samerun_status status =
            job->algorithm == BY_COLUMNS
                ? samerun_multiply_unpacked_columns_f32(job, batch, column_begin, column_end)
                : samerun_multiply_via_transposed_tiles(job, batch, row_begin, row_end, column_begin, column_end);
        if (status != SAMERUN_DONE) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        else if (gemm->bias != NULL) add_bias_to_region(job, batch, row_begin, row_end, column_begin, column_end);
        return;
    }
    int64_t height = ceil_divide(row_end - row_begin, kernels->rows) * kernels->rows;
    int resident = (size_t)(height * gemm->k) * job->element_size <= RESIDENT;
    int64_t depth = min_int64(gemm->k, SAMERUN_BLOCK);
    const int64_t high = choose_packed_row_count(row_end - row_begin),
                  dropped = resident || high == row_end - row_begin;
    const int64_t at_once = choose_packed_column_count(job, row_end - row_begin, column_end - column_begin);
    const int64_t more = samerun_max_panel_count(job, column_begin, column_end) -
                         ceil_divide(column_end - column_begin, kernels->columns);
    const int64_t wide = dropped ? kernels->columns : at_once + more * kernels->columns; /* more are not full */
    const int64_t packed = resident ? height * gemm->k : ceil_divide(high, kernels->rows) * kernels->rows * depth;
    const size_t a_bytes = ((size_t)packed * job->element_size + 2 * LINE) / LINE * LINE;
    const size_t b_bytes = ((size_t)(wide * depth) * job->element_size + 2 * LINE) / LINE * LINE;
    char *scratch = samerun_borrow_scratch(
        SCRATCH_PANELS, a_bytes + b_bytes + (size_t)(kernels->rows * kernels->columns) * job->element_size);
    if (scratch == NULL) {
        __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    (resident ? multiply_region_with_resident_rows : multiply_region_in_k_blocks)(
        job, batch, row_begin, row_end, column_begin, column_end, scratch, scratch + a_bytes,
        scratch + a_bytes + b_bytes);
    samerun_release_scratch(SCRATCH_PANELS, scratch);
    if (gemm->bias != NULL) add_bias_to_region(job, batch, row_begin, row_end, column_begin, column_end);
}

static void compute_regions_range(void *gemm_job, int64_t region_begin, int64_t region_end) {
    for (int64_t region_index = region_begin; region_index < region_end; region_index++)
        compute_result_region(gemm_job, region_index);
}

/* Without any k every product is +0.0. */
static void write_zeros_and_bias_for_empty_k(const gemm_job_t *job) {
    const samerun_gemm *gemm = job->gemm;
    for (int64_t batch = 0; batch < gemm->batches; batch++)
        for (int64_t i = 0; i < gemm->m; i++)
            for (int64_t j = 0; j < gemm->n; j++) {
                int64_t where = gemm->c_batch[batch] + i * gemm->c_row + gemm->c_columns.offset[j];
                memset((char *)gemm->c + where * (int64_t)job->element_size, 0, job->element_size);
            }
    if (gemm->bias != NULL)
        for (int64_t batch = 0; batch < gemm->batches; batch++) add_bias_to_region(job, batch, 0, gemm->m, 0, gemm->n);
}

static const samerun_gemm_kernels *current_gemm_kernels(int is_double) {
#if defined(__x86_64__)
    if (samerun_current_simd_level() == LEVEL_AVX512)
        return is_double ? &samerun_gemm_avx512_f64 : &samerun_gemm_avx512_f32;
    if (samerun_current_simd_level() == LEVEL_AVX2) return is_double ? &samerun_gemm_avx2_f64 : &samerun_gemm_avx2_f32;
#elif defined(__aarch64__)
    return is_double ? &samerun_gemm_neon_f64 : &samerun_gemm_neon_f32;
#endif
    return is_double ? &samerun_gemm_plain_f64 : &samerun_gemm_plain_f32;
}

int64_t samerun_gemm_vector_lanes(int is_double) { return current_gemm_kernels(is_double)->columns / SAMERUN_VECTORS; }

/* Cut the result for `threads`. Each piece packs its own rows and columns: the fewer pieces and the squarer, the
 * less. The last tile of a row may have a vector or two of columns. */
static void choose_region_grid(gemm_job_t *job, int64_t threads) {
    const samerun_gemm *gemm = job->gemm;
    const int64_t lanes = job->algorithm == BY_LINES ? job->kernels->rows : job->kernels->columns / SAMERUN_VECTORS;
    const int64_t bands = ceil_divide(gemm->m, job->kernels->rows), vectors = ceil_divide(gemm->n, lanes);
    const int64_t row_cost = gemm->a_rows.run[0] < 4 ? PACK_COST_STRIDED : PACK_COST_CONTIGUOUS;
    const int64_t column_cost = gemm->b_columns.run[0] < 4 ? PACK_COST_STRIDED : PACK_COST_CONTIGUOUS;
    int64_t best = INT64_MAX;
    for (int64_t down = 1; down <= min_int64(bands, 2 * threads); down++)
        for (int64_t across = 1; across <= min_int64(vectors, 2 * threads / down); across++) {
            const int64_t rows = ceil_divide(bands, down) * job->kernels->rows;
            const int64_t columns = ceil_divide(vectors, across) * lanes;
            const int64_t row_regions = ceil_divide(gemm->m, rows), column_regions = ceil_divide(gemm->n, columns);
            const int64_t turns = ceil_divide(gemm->batches * row_regions * column_regions, threads);
            const int64_t time = turns * (rows * columns + row_cost * rows + column_cost * columns);
            if (time >= best) continue;
            best = time;
            job->row_step = rows, job->column_step = columns;
            job->row_regions = row_regions, job->column_regions = column_regions;
        }
}

static samerun_status run_gemm(const samerun_gemm *gemm, int is_double) {
    gemm_job_t job = {gemm, current_gemm_kernels(is_double), is_double ? 8 : 4, BY_TILES, gemm->m, gemm->n, 1, 1, 0};
    if (gemm->batches == 0 || gemm->m == 0 || gemm->n == 0) return SAMERUN_DONE;
    if (gemm->k == 0) {
        write_zeros_and_bias_for_empty_k(&job);
        return SAMERUN_DONE;
    }
    job.algorithm = samerun_choose_gemm_algorithm(&job);
    int64_t work = gemm->batches * gemm->m * gemm->n * gemm->k, threads = samerun_get_num_threads_for_new_job();
    if (threads > 1 && work > SMALL) choose_region_grid(&job, threads);
    int64_t pieces = gemm->batches * job.row_regions * job.column_regions;
    /* The pool also sets the rounding of this thread right, so small products go through it too. */
    samerun_parallel_for(pieces, work > SMALL ? 1 : pieces, compute_regions_range, &job);
    return job.failed ? SAMERUN_NO_MEMORY : SAMERUN_DONE;
}

samerun_status samerun_run_gemm_and_free_tables(samerun_gemm *gemm, int is_double, int tables_allocated) {
    samerun_status status = tables_allocated ? run_gemm(gemm, is_double) : SAMERUN_NO_MEMORY;
    samerun_free_offset_table_arrays(&gemm->a_rows);
    samerun_free_offset_table_arrays(&gemm->a_k);
    samerun_free_offset_table_arrays(&gemm->b_k);
    samerun_free_offset_table_arrays(&gemm->b_columns);
    samerun_free_offset_table_arrays(&gemm->c_columns);
    free(gemm->a_batch);
    free(gemm->b_batch);
    free(gemm->c_batch);
    free(gemm->block_end);
    return status;
}
