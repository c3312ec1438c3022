/* Products of matrices in blocks of 256 k: `samerun_multiply_and_free_tables` runs one on the pool.
 *
 * Matrices in any layout, unfolded images and gradients of convolutions are all read through two tables of offsets, so
 * that one driver keeps one order of operations for all (decision 0021).
 *
 * A product is cut into pieces of the result; each is computed by one thread from start to end, so no order of
 * additions depends on threads, on the cut or on the instruction set.
 */
#include "product_panel.h"

#include <stdlib.h>
#include <string.h>

#include "level.h"
#include "thread_pool.h"
#include "product_small.h"
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
static void prefetch_runs(const char *line, const samerun_offset_table *across, int64_t column_begin, int64_t columns,
                          size_t real) {
    for (int64_t j = 0, run; j < columns; j += run) {
        run = min_int64(across->run[column_begin + j], columns - j);
        const char *from = line + across->offset[column_begin + j] * (int64_t)real,
                   *to = from + run * (int64_t)real - 1;
        for (__builtin_prefetch(to, 1); from < to; from += LINE) __builtin_prefetch(from, 1);
    }
}

/* One tile of one block of k. Where the result's columns do not lie side by side, it goes through `edge`. */
static void accumulate_tile(const product_job_t *job, const char *a, const panel_t *b, char *c_base, int64_t row_begin,
                            int64_t rows, int64_t column_begin, int64_t columns, int first, char *edge_tile) {
    const samerun_matrix_product *product = job->product;
    const samerun_offset_table *across = &product->c_columns;
    const int64_t width = job->kernels->columns;
    const size_t real = job->real;
    const int whole = across->run[column_begin] >= columns;
    char *to = whole ? c_base + (row_begin * product->c_row + across->offset[column_begin]) * (int64_t)real : edge_tile;
    const int64_t stride = whole ? product->c_row : width;
    const int begin = whole ? first : 1;
    if (!whole) /* else the tile asks for it */
        for (int64_t i = 0; i < rows; i++)
            prefetch_runs(c_base + (row_begin + i) * product->c_row * (int64_t)real, across, column_begin, columns,
                          real);
    samerun_multiply_panel_tile(job, b, a, to, stride, rows, columns, begin);
    if (whole) return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0, run; j < columns; j += run) {
            run = min_int64(across->run[column_begin + j], columns - j);
            char *c = c_base + ((row_begin + i) * product->c_row + across->offset[column_begin + j]) * (int64_t)real;
            const char *part = edge_tile + (i * width + j) * (int64_t)real;
            if (first) memcpy(c, part, (size_t)run * real);
            else if (real == 4)
                for (int64_t q = 0; q < run; q++) ((float *)c)[q] += ((const float *)part)[q];
            else
                for (int64_t q = 0; q < run; q++) ((double *)c)[q] += ((const double *)part)[q];
        }
}

static void add_bias_to_piece(const product_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                              int64_t column_begin, int64_t column_end) {
    const samerun_matrix_product *product = job->product;
    char *c_base = (char *)product->c + product->c_batch[batch] * (int64_t)job->real;
    for (int64_t i = row_begin; i < row_end; i++)
        for (int64_t j = column_begin; j < column_end;) {
            int64_t run = min_int64(product->c_columns.run[j], column_end - j);
            char *c = c_base + (i * product->c_row + product->c_columns.offset[j]) * (int64_t)job->real;
            int64_t from = product->bias_batch * batch + product->bias_row * i + product->bias_column * j;
            if (job->real == 4) {
                float *to = (float *)c;
                const float *bias = (const float *)product->bias + from;
                if (product->bias_column == 0)
                    for (int64_t q = 0; q < run; q++) to[q] += bias[0];
                else
                    for (int64_t q = 0; q < run; q++) to[q] += bias[q * product->bias_column];
            } else {
                double *to = (double *)c;
                const double *bias = (const double *)product->bias + from;
                for (int64_t q = 0; q < run; q++) to[q] += bias[q * product->bias_column];
            }
            j += run;
        }
}

/* Few rows are taken at once: then columns need not be kept. */
static int64_t choose_rows_at_once(int64_t rows) { return rows <= ROWS_ALONE ? rows : ROWS_AT_ONCE; }

/* Parts of about one size, so that no part is a sliver for which all rows are packed again. */
static int64_t choose_columns_at_once(const product_job_t *job, int64_t rows, int64_t columns) {
    const int64_t wide = job->kernels->columns;
    const int64_t parts = rows <= ROWS_ALONE ? 1 : (columns + COLUMNS_AT_ONCE / 2) / COLUMNS_AT_ONCE;
    return ceil_divide(ceil_divide(columns, parts > 0 ? parts : 1), wide) * wide;
}

/* Whether from `column` on there is a whole tile of which each vector's columns lie side by side, and where. */
static int tile_columns_are_contiguous(const product_job_t *job, int64_t column_begin, int64_t column_end,
                                       int64_t *vector_offsets) {
    const samerun_offset_table *across = &job->product->b_columns;
    const int64_t lanes = job->kernels->columns / SAMERUN_VECTORS;
    if (samerun_count_panel_columns(job, column_begin, column_end) < job->kernels->columns ||
        !samerun_panel_meets_all_taps(job, column_begin))
        return 0;
    for (int v = 0; v < SAMERUN_VECTORS; v++, column_begin += lanes) {
        if (across->run[column_begin] < lanes) return 0;
        vector_offsets[v] = across->offset[column_begin];
    }
    return 1;
}

/* All k of the rows are packed once; then the columns go by, one panel after the other. */
static void multiply_resident_rows(const product_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                                   int64_t column_begin, int64_t column_end, char *packed_a, char *packed_b,
                                   char *edge_tile) {
    const samerun_matrix_product *product = job->product;
    const samerun_product_kernels *kernels = job->kernels;
    const char *a = element_address(product->a, product->a_batch[batch], job->real);
    const char *b = element_address(product->b, product->b_batch[batch], job->real);
    char *c = (char *)product->c + product->c_batch[batch] * (int64_t)job->real;
    int64_t height = ceil_divide(row_end - row_begin, kernels->rows) * kernels->rows;
    for (int64_t k = 0, end, number = 0; k < product->k; k = end, number++) {
        int64_t depth = (end = k_block_end(product, k, number)) - k;
        char *block = packed_a + (size_t)(k * height) * job->real;
        for (int64_t i = row_begin; i < row_end; i += kernels->rows)
            kernels->pack_rows(block + (size_t)((i - row_begin) * depth) * job->real, a, &product->a_rows, i,
                               min_int64(kernels->rows, row_end - i), &product->a_k, k, depth, product->a_slack);
    }
    const int few = row_end - row_begin <= SAMERUN_FEW_ROWS;
    for (int64_t j = column_begin, columns; j < column_end; j += columns) {
        columns = samerun_count_panel_columns(job, j, column_end);
        int64_t at[SAMERUN_VECTORS], next[SAMERUN_VECTORS];
        const int in_place = few && tile_columns_are_contiguous(job, j, column_end, at);
        const int more = in_place && tile_columns_are_contiguous(job, j + columns, column_end, next);
        panel_t panel;
        panel.packed = in_place ? NULL : packed_b, panel.base = b, panel.at = at;
        for (int64_t k = 0, end, number = 0; k < product->k; k = end, number++) {
            int64_t depth = (end = k_block_end(product, k, number)) - k;
            const char *block = packed_a + (size_t)(k * height) * job->real;
            samerun_set_up_panel(job, b, j, columns, k, depth, in_place ? NULL : packed_b, &panel);
            for (int64_t i = row_begin; i < row_end; i += kernels->rows) {
                panel.next = more && i == row_begin ? next : NULL; /* asked for once */
                accumulate_tile(job, block + (size_t)((i - row_begin) * depth) * job->real, &panel, c, i,
                                min_int64(kernels->rows, row_end - i), j, columns, k == 0, edge_tile);
            }
        }
    }
}

static void multiply_packed_in_blocks(const product_job_t *job, int64_t batch, int64_t row_begin, int64_t row_end,
                                      int64_t column_begin, int64_t column_end, char *packed_a, char *packed_b,
                                      char *edge_tile) {
    const samerun_matrix_product *product = job->product;
    const samerun_product_kernels *kernels = job->kernels;
    const char *a = element_address(product->a, product->a_batch[batch], job->real);
    const char *b = element_address(product->b, product->b_batch[batch], job->real);
    char *c = (char *)product->c + product->c_batch[batch] * (int64_t)job->real;
    const int64_t width = choose_columns_at_once(job, row_end - row_begin, column_end - column_begin),
                  high = choose_rows_at_once(row_end - row_begin);
    panel_t panel;
    for (int64_t start = column_begin; start < column_end; start += width) {
        int64_t stop = min_int64(start + width, column_end);
        for (int64_t k = 0, end, number = 0; k < product->k; k = end, number++) {
            int64_t depth = (end = k_block_end(product, k, number)) - k;
            for (int64_t top = row_begin; top < row_end; top += high) {
                int64_t bottom = min_int64(top + high, row_end);
                for (int64_t i = top; i < bottom; i += kernels->rows)
                    kernels->pack_rows(packed_a + (size_t)((i - top) * depth) * job->real, a, &product->a_rows, i,
                                       min_int64(kernels->rows, bottom - i), &product->a_k, k, depth, product->a_slack);
                char *packed = packed_b;
                for (int64_t j = start, columns; j < stop; j += columns) {
                    columns = samerun_count_panel_columns(job, j, stop);
                    panel.packed = packed;
                    samerun_set_up_panel(job, b, j, columns, k, depth, top == row_begin ? packed : NULL, &panel);
                    for (int64_t i = top; i < bottom; i += kernels->rows)
                        accumulate_tile(job, packed_a + (size_t)((i - top) * depth) * job->real, &panel, c, i,
                                        min_int64(kernels->rows, bottom - i), j, columns, k == 0, edge_tile);
                    if (high < row_end - row_begin) packed += (size_t)(kernels->columns * depth) * job->real; /* kept */
                }
            }
        }
    }
}

static void compute_result_piece(product_job_t *job, int64_t number) {
    const samerun_matrix_product *product = job->product;
    const samerun_product_kernels *kernels = job->kernels;
    int64_t batch = number / (job->row_pieces * job->column_pieces);
    int64_t rest = number % (job->row_pieces * job->column_pieces);
    int64_t row_begin = rest / job->column_pieces * job->row_step,
            column_begin = rest % job->column_pieces * job->column_step;
    int64_t row_end = min_int64(row_begin + job->row_step, product->m),
            column_end = min_int64(column_begin + job->column_step, product->n);
    if (job->way != BY_TILES) {
        const samerun_status status =
            job->way == BY_COLUMNS
                ? samerun_multiply_unpacked_columns(job, batch, column_begin, column_end)
                : samerun_multiply_transposed(job, batch, row_begin, row_end, column_begin, column_end);
        if (status != SAMERUN_DONE) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        else if (product->bias != NULL) add_bias_to_piece(job, batch, row_begin, row_end, column_begin, column_end);
        return;
    }
    int64_t height = ceil_divide(row_end - row_begin, kernels->rows) * kernels->rows;
    int resident = (size_t)(height * product->k) * job->real <= RESIDENT;
    int64_t depth = min_int64(product->k, SAMERUN_BLOCK);
    const int64_t high = choose_rows_at_once(row_end - row_begin), dropped = resident || high == row_end - row_begin;
    const int64_t at_once = choose_columns_at_once(job, row_end - row_begin, column_end - column_begin);
    const int64_t more = samerun_count_most_panels(job, column_begin, column_end) -
                         ceil_divide(column_end - column_begin, kernels->columns);
    const int64_t wide = dropped ? kernels->columns : at_once + more * kernels->columns; /* more are not full */
    const int64_t packed = resident ? height * product->k : ceil_divide(high, kernels->rows) * kernels->rows * depth;
    const size_t a_bytes = ((size_t)packed * job->real + 2 * LINE) / LINE * LINE;
    const size_t b_bytes = ((size_t)(wide * depth) * job->real + 2 * LINE) / LINE * LINE;
    char *scratch = samerun_borrow_scratch(SCRATCH_PANELS,
                                           a_bytes + b_bytes + (size_t)(kernels->rows * kernels->columns) * job->real);
    if (scratch == NULL) {
        __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    (resident ? multiply_resident_rows : multiply_packed_in_blocks)(job, batch, row_begin, row_end, column_begin,
                                                                    column_end, scratch, scratch + a_bytes,
                                                                    scratch + a_bytes + b_bytes);
    samerun_release_scratch(SCRATCH_PANELS, scratch);
    if (product->bias != NULL) add_bias_to_piece(job, batch, row_begin, row_end, column_begin, column_end);
}

static void compute_pieces_range(void *args, int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; number++) compute_result_piece(args, number);
}

/* Without any k every product is +0.0. */
static void write_zeros_plus_bias(const product_job_t *job) {
    const samerun_matrix_product *product = job->product;
    for (int64_t batch = 0; batch < product->batches; batch++)
        for (int64_t i = 0; i < product->m; i++)
            for (int64_t j = 0; j < product->n; j++) {
                int64_t where = product->c_batch[batch] + i * product->c_row + product->c_columns.offset[j];
                memset((char *)product->c + where * (int64_t)job->real, 0, job->real);
            }
    if (product->bias != NULL)
        for (int64_t batch = 0; batch < product->batches; batch++)
            add_bias_to_piece(job, batch, 0, product->m, 0, product->n);
}

static const samerun_product_kernels *current_product_kernels(int is_double) {
#if defined(__x86_64__)
    if (samerun_level() == LEVEL_AVX512) return is_double ? &samerun_product_avx512_f64 : &samerun_product_avx512_f32;
    if (samerun_level() == LEVEL_AVX2) return is_double ? &samerun_product_avx2_f64 : &samerun_product_avx2_f32;
#elif defined(__aarch64__)
    return is_double ? &samerun_product_neon_f64 : &samerun_product_neon_f32;
#endif
    return is_double ? &samerun_product_plain_f64 : &samerun_product_plain_f32;
}

int64_t samerun_vector_lanes(int is_double) { return current_product_kernels(is_double)->columns / SAMERUN_VECTORS; }

/* Cut the result for `threads`. Each piece packs its own rows and columns: the fewer pieces and the squarer, the less. The
 * last tile of a row may have a vector or two of columns. */
static void choose_piece_grid(product_job_t *job, int64_t threads) {
    const samerun_matrix_product *product = job->product;
    const int64_t lanes = job->way == BY_LINES ? job->kernels->rows : job->kernels->columns / SAMERUN_VECTORS;
    const int64_t bands = ceil_divide(product->m, job->kernels->rows), vectors = ceil_divide(product->n, lanes);
    const int64_t row_cost = product->a_rows.run[0] < 4 ? PACK_COST_STRIDED : PACK_COST_CONTIGUOUS;
    const int64_t column_cost = product->b_columns.run[0] < 4 ? PACK_COST_STRIDED : PACK_COST_CONTIGUOUS;
    int64_t best = INT64_MAX;
    for (int64_t down = 1; down <= min_int64(bands, 2 * threads); down++)
        for (int64_t across = 1; across <= min_int64(vectors, 2 * threads / down); across++) {
            const int64_t rows = ceil_divide(bands, down) * job->kernels->rows;
            const int64_t columns = ceil_divide(vectors, across) * lanes;
            const int64_t row_pieces = ceil_divide(product->m, rows), column_pieces = ceil_divide(product->n, columns);
            const int64_t turns = ceil_divide(product->batches * row_pieces * column_pieces, threads);
            const int64_t time = turns * (rows * columns + row_cost * rows + column_cost * columns);
            if (time >= best) continue;
            best = time;
            job->row_step = rows, job->column_step = columns;
            job->row_pieces = row_pieces, job->column_pieces = column_pieces;
        }
}

static samerun_status multiply_matrices(const samerun_matrix_product *product, int is_double) {
    product_job_t job = {
        product, current_product_kernels(is_double), is_double ? 8 : 4, BY_TILES, product->m, product->n, 1, 1, 0};
    if (product->batches == 0 || product->m == 0 || product->n == 0) return SAMERUN_DONE;
    if (product->k == 0) {
        write_zeros_plus_bias(&job);
        return SAMERUN_DONE;
    }
    job.way = samerun_choose_product_algorithm(&job);
    int64_t work = product->batches * product->m * product->n * product->k, threads = samerun_count_available_threads();
    if (threads > 1 && work > SMALL) choose_piece_grid(&job, threads);
    int64_t pieces = product->batches * job.row_pieces * job.column_pieces;
    /* The pool also sets the rounding of this thread right, so small products go through it too. */
    samerun_parallel_for(pieces, work > SMALL ? 1 : pieces, compute_pieces_range, &job);
    return job.failed ? SAMERUN_NO_MEMORY : SAMERUN_DONE;
}

samerun_status samerun_multiply_and_free_tables(samerun_matrix_product *product, int is_double, int made) {
    samerun_status status = made ? multiply_matrices(product, is_double) : SAMERUN_NO_MEMORY;
    samerun_free_offset_table(&product->a_rows);
    samerun_free_offset_table(&product->a_k);
    samerun_free_offset_table(&product->b_k);
    samerun_free_offset_table(&product->b_columns);
    samerun_free_offset_table(&product->c_columns);
    free(product->a_batch);
    free(product->b_batch);
    free(product->c_batch);
    free(product->block_end);
    return status;
}
