/* Products on AVX-512: tiles of 8 x 48 float32 or 8 x 24 float64. */
#include "gemm_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET_ISA __attribute__((target("avx512f,avx2,fma")))
#include "transpose_avx2.h"

#define FEW_ROWS_KERNEL samerun_multiply_few_packed_rows_f32
#define REAL float
#define VECTOR __m512
#define LANES 16
#define ROWS 8
#define TARGET TARGET_ISA
#define NAME(x) f32_##x
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPLAT _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#define ZERO _mm512_setzero_ps()
#define TRANSPOSE_WIDE 8
#define TRANSPOSE_DEEP 16
#define TRANSPOSE transpose_8x16_f32
#define f32_kernels samerun_gemm_avx512_f32
#include "gemm_tile.h"

#define FEW_ROWS_KERNEL NULL
#define REAL double
#define VECTOR __m512d
#define LANES 8
#define ROWS 8
#define TARGET TARGET_ISA
#define NAME(x) f64_##x
#define LOAD _mm512_loadu_pd
#define STORE _mm512_storeu_pd
#define SPLAT _mm512_set1_pd
#define FMA _mm512_fmadd_pd
#define ADD _mm512_add_pd
#define ZERO _mm512_setzero_pd()
#define TRANSPOSE_WIDE 4
#define TRANSPOSE_DEEP 4
#define TRANSPOSE transpose_4x4_f64
#define f64_kernels samerun_gemm_avx512_f64
#include "gemm_tile.h"

#endif
