/* Products on AVX2 with FMA: tiles of 4 x 24 float32 or 4 x 12 float64. */
#include "gemm_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET_ISA __attribute__((target("avx2,fma")))
#include "transpose_avx2.h"

/* Eight k's of the four rows of a tile, which then lie one behind the other. */
static inline __attribute__((always_inline)) TARGET_ISA void transpose_4x8_f32(float *dst, const float *src,
                                                                               const int64_t *row_offsets) {
    __m256 a = _mm256_loadu_ps(src + row_offsets[0]), b = _mm256_loadu_ps(src + row_offsets[1]);
    __m256 c = _mm256_loadu_ps(src + row_offsets[2]), d = _mm256_loadu_ps(src + row_offsets[3]);
    __m256 p = _mm256_unpacklo_ps(a, b), q = _mm256_unpackhi_ps(a, b);
    __m256 r = _mm256_unpacklo_ps(c, d), s = _mm256_unpackhi_ps(c, d);
    __m256 k0 = _mm256_shuffle_ps(p, r, 0x44), k1 = _mm256_shuffle_ps(p, r, 0xEE); /* k 0 and 4, 1 and 5 */
    __m256 k2 = _mm256_shuffle_ps(q, s, 0x44), k3 = _mm256_shuffle_ps(q, s, 0xEE);
    _mm256_storeu_ps(dst, _mm256_permute2f128_ps(k0, k1, 0x20));
    _mm256_storeu_ps(dst + 8, _mm256_permute2f128_ps(k2, k3, 0x20));
    _mm256_storeu_ps(dst + 16, _mm256_permute2f128_ps(k0, k1, 0x31));
    _mm256_storeu_ps(dst + 24, _mm256_permute2f128_ps(k2, k3, 0x31));
}

/* Eight k's of eight columns, turned: t[q] has k number q of each. */
static inline __attribute__((always_inline)) TARGET_ISA void transpose_8_columns(__m256 t[8], const float *src,
                                                                                 const int64_t *column_offsets) {
    __m256 r[8], p[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + column_offsets[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        p[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(p[i], p[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(p[i], p[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
}

static inline __attribute__((always_inline)) TARGET_ISA void multiply_few_packed_rows(const float *packed_a,
                                                                                      const float *b,
                                                                                      const int64_t *column_offsets,
                                                                                      int64_t columns, int64_t k_size,
                                                                                      float *result, const int rows) {
    enum { AHEAD = 128 /* floats */ };
    for (int64_t j = 0; j < columns; j += 8) {
        int64_t place[8];
        __m256 total[SAMERUN_MOST_FEW_ROWS] = {_mm256_setzero_ps()};
        /* Columns that are not there are the last one again, and are not kept. */
        for (int i = 0; i < 8; i++) place[i] = column_offsets[j + i < columns ? j + i : columns - 1];
        for (int64_t start = 0; start < k_size; start += SAMERUN_BLOCK) {
            const int64_t end = start + SAMERUN_BLOCK < k_size ? start + SAMERUN_BLOCK : k_size;
            __m256 sum[SAMERUN_MOST_FEW_ROWS], t[8];
            int64_t k = start;
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sum[r] = _mm256_setzero_ps();
            for (; k + 8 <= end; k += 8) {
                if (k % 16 == 0)
                    for (int i = 0; i < 8; i++) __builtin_prefetch(b + place[i] + k + AHEAD);
                transpose_8_columns(t, b + k, place);
#pragma GCC unroll 8
                for (int q = 0; q < 8; q++)
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++)
                        sum[r] = _mm256_fmadd_ps(_mm256_set1_ps(packed_a[(k + q) * rows + r]), t[q], sum[r]);
            }
            for (; k < end; k++) {
                float one[8];
                for (int i = 0; i < 8; i++) one[i] = b[place[i] + k];
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++)
                    sum[r] = _mm256_fmadd_ps(_mm256_set1_ps(packed_a[k * rows + r]), _mm256_loadu_ps(one), sum[r]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) total[r] = start ? _mm256_add_ps(total[r], sum[r]) : sum[r];
        }
        for (int r = 0; r < rows; r++) {
            float found[8];
            _mm256_storeu_ps(found, total[r]);
            for (int64_t i = 0; i < 8 && j + i < columns; i++) result[r * columns + j + i] = found[i];
        }
    }
}

TARGET_ISA void samerun_multiply_few_packed_rows_f32(const void *packed_a, int rows, const void *b,
                                                     const int64_t *column_offsets, int64_t columns, int64_t k_size,
                                                     void *result) {
    switch (rows) {
    case 1: multiply_few_packed_rows(packed_a, b, column_offsets, columns, k_size, result, 1); break;
    case 2: multiply_few_packed_rows(packed_a, b, column_offsets, columns, k_size, result, 2); break;
    case 3: multiply_few_packed_rows(packed_a, b, column_offsets, columns, k_size, result, 3); break;
    default: multiply_few_packed_rows(packed_a, b, column_offsets, columns, k_size, result, 4);
    }
}

#define FEW_ROWS_KERNEL samerun_multiply_few_packed_rows_f32
#define REAL float
#define VECTOR __m256
#define LANES 8
#define ROWS 4
#define TARGET TARGET_ISA
#define NAME(x) f32_##x
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPLAT _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define ZERO _mm256_setzero_ps()
#define TRANSPOSE_WIDE (width == 4 ? 4 : 8)
#define TRANSPOSE_DEEP (width == 4 ? 8 : 16)
#define TRANSPOSE(dst, stride, src, row) \
    (width == 4 ? transpose_4x8_f32(dst, src, row) : transpose_8x16_f32(dst, stride, src, row))
#define f32_kernels samerun_gemm_avx2_f32
#include "gemm_tile.h"

#define FEW_ROWS_KERNEL NULL
#define REAL double
#define VECTOR __m256d
#define LANES 4
#define ROWS 4
#define TARGET TARGET_ISA
#define NAME(x) f64_##x
#define LOAD _mm256_loadu_pd
#define STORE _mm256_storeu_pd
#define SPLAT _mm256_set1_pd
#define FMA _mm256_fmadd_pd
#define ADD _mm256_add_pd
#define ZERO _mm256_setzero_pd()
#define TRANSPOSE_WIDE 4
#define TRANSPOSE_DEEP 4
#define TRANSPOSE transpose_4x4_f64
#define f64_kernels samerun_gemm_avx2_f64
#include "gemm_tile.h"

#endif
