/* Products on AVX2 with FMA: tiles of 4 x 24 float32 or 4 x 12 float64. */
#include "product.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WITH __attribute__((target("avx2,fma")))

static inline __attribute__((always_inline)) WITH void turned_f32(float *dst, int64_t stride, const float *src,
                                                                  const int64_t *row) {
    __m256 r[8], t[8], u[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(src + row[i]);
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

/* Four rows at a time fit both widths. */
static inline __attribute__((always_inline)) WITH void turned4_f32(float *dst, int64_t stride, const float *src,
                                                                   const int64_t *row) {
    __m128 a = _mm_loadu_ps(src + row[0]), b = _mm_loadu_ps(src + row[1]);
    __m128 c = _mm_loadu_ps(src + row[2]), d = _mm_loadu_ps(src + row[3]);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(dst, a);
    _mm_storeu_ps(dst + stride, b);
    _mm_storeu_ps(dst + 2 * stride, c);
    _mm_storeu_ps(dst + 3 * stride, d);
}

static inline __attribute__((always_inline)) WITH void turned_f64(double *dst, int64_t stride, const double *src,
                                                                  const int64_t *row) {
    __m256d a = _mm256_loadu_pd(src + row[0]), b = _mm256_loadu_pd(src + row[1]);
    __m256d c = _mm256_loadu_pd(src + row[2]), d = _mm256_loadu_pd(src + row[3]);
    __m256d p = _mm256_unpacklo_pd(a, b), q = _mm256_unpackhi_pd(a, b);
    __m256d r = _mm256_unpacklo_pd(c, d), s = _mm256_unpackhi_pd(c, d);
    _mm256_storeu_pd(dst, _mm256_permute2f128_pd(p, r, 0x20));
    _mm256_storeu_pd(dst + stride, _mm256_permute2f128_pd(q, s, 0x20));
    _mm256_storeu_pd(dst + 2 * stride, _mm256_permute2f128_pd(p, r, 0x31));
    _mm256_storeu_pd(dst + 3 * stride, _mm256_permute2f128_pd(q, s, 0x31));
}

#define REAL float
#define VECTOR __m256
#define LANES 8
#define ROWS 4
#define TARGET WITH
#define NAME(x) f32_##x
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPLAT _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define ZERO _mm256_setzero_ps()
#define SQUARE (width % 8 == 0 ? 8 : 4)
#define TRANSPOSE(dst, stride, src, row) \
    (width % 8 == 0 ? turned_f32(dst, stride, src, row) : turned4_f32(dst, stride, src, row))
#define f32_kernels samerun_product_avx2_f32
#include "product_tile.h"

#define REAL double
#define VECTOR __m256d
#define LANES 4
#define ROWS 4
#define TARGET WITH
#define NAME(x) f64_##x
#define LOAD _mm256_loadu_pd
#define STORE _mm256_storeu_pd
#define SPLAT _mm256_set1_pd
#define FMA _mm256_fmadd_pd
#define ADD _mm256_add_pd
#define ZERO _mm256_setzero_pd()
#define SQUARE 4
#define TRANSPOSE turned_f64
#define f64_kernels samerun_product_avx2_f64
#include "product_tile.h"

#endif
