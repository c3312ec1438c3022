/* Products in plain C: the language's own fma, one number at a time. Any machine, the same bits. */
#include <math.h>

#include "gemm_kernels.h"

#define ONE(x) (x)
#define READ(at) (*(at))
#define WRITE(at, value) (*(at) = (value))
#define PLUS(a, b) ((a) + (b))

#define FEW_ROWS_KERNEL NULL
#define REAL float
#define VECTOR float
#define LANES 1
#define ROWS 4
#define TARGET
#define NAME(x) f32_##x
#define LOAD READ
#define STORE WRITE
#define SPLAT ONE
#define FMA fmaf
#define ADD PLUS
#define ZERO 0.0f
#define f32_kernels samerun_gemm_plain_f32
#include "gemm_tile.h"

#define FEW_ROWS_KERNEL NULL
#define REAL double
#define VECTOR double
#define LANES 1
#define ROWS 4
#define TARGET
#define NAME(x) f64_##x
#define LOAD READ
#define STORE WRITE
#define SPLAT ONE
#define FMA fma
#define ADD PLUS
#define ZERO 0.0
#define f64_kernels samerun_gemm_plain_f64
#include "gemm_tile.h"
