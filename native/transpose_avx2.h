/* Squares turned for packing, by the levels of x86, each of which defines WITH, the target. src[row[i] + j] goes to
 * dst[j * stride + i].
 */
#ifndef SAMERUN_TRANSPOSE_AVX2_H
#define SAMERUN_TRANSPOSE_AVX2_H

#include <immintrin.h>
#include <stdint.h>

static inline __attribute__((always_inline)) TARGET_ISA void transpose_8x8_f32(float *dst, int64_t stride,
                                                                               const float *src,
                                                                               const int64_t *row_offsets) {
    __m256 r[8], t[8], u[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + row_offsets[i]);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + i * stride, _mm256_permute2f128_ps(u[i], u[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * stride, _mm256_permute2f128_ps(u[i], u[i + 4], 0x31));
    }
}

/* A whole cache line of k's at once: lines of different columns often share a set, and would be gone the next time. */
static inline __attribute__((always_inline)) TARGET_ISA void transpose_8x16_f32(float *dst, int64_t stride,
                                                                                const float *src,
                                                                                const int64_t *row_offsets) {
    for (int i = 0; i < 8; i++) __builtin_prefetch(src + row_offsets[i] + 64, 0, 2);
    transpose_8x8_f32(dst, stride, src, row_offsets);
    transpose_8x8_f32(dst + 8 * stride, stride, src + 8, row_offsets);
}

static inline __attribute__((always_inline)) TARGET_ISA void transpose_4x4_f64(double *dst, int64_t stride,
                                                                               const double *src,
                                                                               const int64_t *row_offsets) {
    __m256d a = _mm256_loadu_pd(src + row_offsets[0]), b = _mm256_loadu_pd(src + row_offsets[1]);
    __m256d c = _mm256_loadu_pd(src + row_offsets[2]), d = _mm256_loadu_pd(src + row_offsets[3]);
    __m256d p = _mm256_unpacklo_pd(a, b), q = _mm256_unpackhi_pd(a, b);
    __m256d r = _mm256_unpacklo_pd(c, d), s = _mm256_unpackhi_pd(c, d);
    _mm256_storeu_pd(dst, _mm256_permute2f128_pd(p, r, 0x20));
    _mm256_storeu_pd(dst + stride, _mm256_permute2f128_pd(q, s, 0x20));
    _mm256_storeu_pd(dst + 2 * stride, _mm256_permute2f128_pd(p, r, 0x31));
    _mm256_storeu_pd(dst + 3 * stride, _mm256_permute2f128_pd(q, s, 0x31));
}

#endif
