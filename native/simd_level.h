/* Which instructions the kernels use. All levels give the same bits; they differ in speed. */
#ifndef SAMERUN_SIMD_LEVEL_H
#define SAMERUN_SIMD_LEVEL_H

#if defined(__x86_64__)
enum { LEVEL_PLAIN, LEVEL_AVX2, LEVEL_AVX512, LEVELS };
#else
enum { LEVEL_PLAIN, LEVELS }; /* 64-bit ARM: what the compiler makes of plain C is NEON */
#endif

/* The level in force: the best this machine has, or the forced one. */
int samerun_current_simd_level(void);
/* "plain", "avx2", "avx512"; "neon" on 64-bit ARM; NULL for a number that is no level. */
const char *samerun_simd_level_name(int level);
/* 1 where this machine can run `level`. */
int samerun_simd_level_is_supported(int level);
/* Use `level` from now on; -1: the best again. 0 where it cannot run here, and then nothing changes. */
int samerun_try_force_simd_level(int level_or_minus_1_for_best);
/* 1 where numbers behave as the kernels expect: little-endian, no contraction, one rounding in fma. */
int samerun_arithmetic_is_ieee(void);

#endif
