/* Products on NEON (every AArch64 has it, with fma): tiles of 8 x 12 float32 or 8 x 6 float64. */
#include "gemm_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define FEW_ROWS_KERNEL NULL
#define REAL float
#define VECTOR float32x4_t
#define LANES 4
#define ROWS 8
#define TARGET
#define NAME(x) f32_##x
#define LOAD vld1q_f32
#define STORE vst1q_f32
#define SPLAT vdupq_n_f32
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define ADD vaddq_f32
#define ZERO vdupq_n_f32(0)
#define f32_kernels samerun_gemm_neon_f32
#include "gemm_tile.h"

#define FEW_ROWS_KERNEL NULL
#define REAL double
#define VECTOR float64x2_t
#define LANES 2
#define ROWS 8
#define TARGET
#define NAME(x) f64_##x
#define LOAD vld1q_f64
#define STORE vst1q_f64
#define SPLAT vdupq_n_f64
#define FMA(a, b, c) vfmaq_f64(c, a, b)
#define ADD vaddq_f64
#define ZERO vdupq_n_f64(0)
#define f64_kernels samerun_gemm_neon_f64
#include "gemm_tile.h"

#endif
