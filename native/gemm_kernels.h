/* Products of matrices (class M): what the driver and the tiles of each instruction set share.
 *
 * Every operand is read through two tables of offsets, element (i, k) = data[row[i] + col[k]], so that a
 * matrix in any layout, an unfolded image and the gradients of a convolution are one and the same product.
 */
#ifndef SAMERUN_GEMM_KERNELS_H
#define SAMERUN_GEMM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "offset_table.h"

/* The specification's block of k: an fma chain from +0.0; the blocks are added in ascending order. */
enum { SAMERUN_BLOCK = 256 };

/* Copy `count` rows (or columns) times `depth` k's into dst[k * width + r]; what is missing up to `width` is 0.
 * `may_overread`: the memory may be read a vector beyond its end. dst has room for a vector beyond its end too. */
typedef void samerun_pack_panel(void *dst, const void *base, const samerun_offset_table *across, int64_t first_row,
                                int64_t count, const samerun_offset_table *k, int64_t k_begin, int64_t depth,
                                int may_overread);

/* One block of k of a tile of `rows` x `columns`: written to c, or added to what stands there. */
typedef void samerun_multiply_packed_tile(int64_t depth, const void *a, const void *b, void *c, int64_t c_stride,
                                          int rows, int columns, int overwrite);

/* The same for a whole tile's columns that are not packed: vector v of number k of b is at b + k_offsets[k] +
 * vector_offsets[v]. Those at prefetch_offsets[v] (or NULL) will be met soon. */
typedef void samerun_multiply_tile_unpacked_columns(int64_t depth, const void *a, const void *b,
                                                    const int64_t *k_offsets, const int64_t *vector_offsets,
                                                    const int64_t *prefetch_offsets, void *c, int64_t c_stride,
                                                    int rows, int overwrite);
/* The same for rows that are not packed: number k of row i is at a + row_offsets[i] + k_offsets[k]. */
typedef void samerun_multiply_tile_unpacked_rows(int64_t depth, const void *a, const int64_t *row_offsets,
                                                 const int64_t *k_offsets, const void *b, void *c, int64_t c_stride,
                                                 int rows, int columns, int overwrite);
enum { SAMERUN_VECTORS = 3, SAMERUN_MOST_ROWS = 8 }; /* side by side in a tile; of a tile */

/* Few rows times columns whose k's lie side by side, which are read once and never packed. rows is at most
 * SAMERUN_MOST_FEW_ROWS; packed_a[k * rows + r]; column j of the matrix at b + column_offsets[j]; its results (all of
 * k) at result[r * columns + j]. */
typedef void samerun_multiply_few_packed_rows(const void *packed_a, int rows, const void *b,
                                              const int64_t *column_offsets, int64_t columns, int64_t k, void *result);
enum { SAMERUN_MOST_FEW_ROWS = 4 };

typedef struct {
    int rows, columns; /* of a whole tile */
    samerun_pack_panel *pack_rows, *pack_columns;
    samerun_multiply_packed_tile *multiply_packed_tile;
    samerun_multiply_tile_unpacked_columns *multiply_tile_unpacked_columns;
    samerun_multiply_tile_unpacked_rows *multiply_tile_unpacked_rows;
    samerun_multiply_few_packed_rows *multiply_few_packed_rows; /* NULL: none */
} samerun_gemm_kernels;

extern const samerun_gemm_kernels samerun_gemm_plain_f32, samerun_gemm_plain_f64;
#if defined(__x86_64__)
samerun_multiply_few_packed_rows samerun_multiply_few_packed_rows_f32; /* AVX2 */
extern const samerun_gemm_kernels samerun_gemm_avx2_f32, samerun_gemm_avx2_f64;
extern const samerun_gemm_kernels samerun_gemm_avx512_f32, samerun_gemm_avx512_f64;
#elif defined(__aarch64__)
extern const samerun_gemm_kernels samerun_gemm_neon_f32, samerun_gemm_neon_f64;
#endif

#endif
