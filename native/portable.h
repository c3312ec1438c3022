/* Arithmetic that CPU and CUDA sources share: what every result of the numerical specification is made of.
 *
 * Only single IEEE operations, in the order written. Compile with contraction off (-ffp-contract=off,
 * --fmad=false) and without fast-math: a*b + c below is two roundings, fma32 and fma64 are one.
 */
#ifndef SAMERUN_PORTABLE_H
#define SAMERUN_PORTABLE_H

#if defined(__CUDACC_RTC__)
#include "cuda/device.h"
#else
#include <stdint.h>
#include <string.h>
#endif

#if defined(__FAST_MATH__)
#error "the bits of these functions are specified: compile without -ffast-math"
#endif

#if defined(__CUDACC_RTC__)
#define PORTABLE static __device__ __forceinline__
#elif defined(__CUDACC__)
#define PORTABLE static __host__ __device__ __forceinline__
#else
#define PORTABLE static inline __attribute__((always_inline, unused))
#endif

enum {
    SUM_BLOCK = 4096, /* values of one block of a sum */
    SUM_LANES = 32,   /* running sums inside a block; a warp of a GPU */
};

/* x + -0.0f == x for every x, -0.0f too: the term of a sum that is not there. */
#define ABSENT32 (-0.0f)
#define ABSENT64 (-0.0)

PORTABLE float fma32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PORTABLE double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }

PORTABLE uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
PORTABLE uint64_t bits_of_double(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}
PORTABLE float float_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
PORTABLE double double_from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

/* `magnitude` with the sign of `sign`, which keeps -0.0 and the sign of a NaN. */
PORTABLE double copy_sign(double magnitude, double sign) {
    const uint64_t mask = 0x8000000000000000U;
    return double_from_bits((bits_of_double(magnitude) & ~mask) | (bits_of_double(sign) & mask));
}

/* The 32 lanes of a block to one value: lane l += lane l+16, then +8, +4, +2, +1. */
#define LANES_TO_ONE(lane, combine)                 \
    for (int half = SUM_LANES / 2; half; half /= 2) \
        for (int l = 0; l < half; l++) (lane)[l] = combine((lane)[l], (lane)[l + half])

/* The sums of n > 0 blocks to one, in place: adjacent pairs, level by level, an odd last one moves up. */
#define BLOCKS_TO_ONE(block, n, combine)                                       \
    for (int64_t left = (n); left > 1; left = (left + 1) / 2) {                \
        for (int64_t pair = 0; pair < left / 2; pair++)                        \
            (block)[pair] = combine((block)[2 * pair], (block)[2 * pair + 1]); \
        if (left % 2) (block)[left / 2] = (block)[left - 1];                   \
    }

#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011). Key: the seed.
 * Counter: the number of the draw in its stream (low 64 bits), and that of the block of four words (high). */
PORTABLE void philox4x32_10(uint64_t seed, uint64_t draw_number, uint64_t block_number, uint32_t out_words[4]) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)draw_number, c1 = (uint32_t)(draw_number >> 32);
    uint32_t c2 = (uint32_t)block_number, c3 = (uint32_t)(block_number >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53U * c0, p1 = (uint64_t)0xCD9E8D57U * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    out_words[0] = c0, out_words[1] = c1, out_words[2] = c2, out_words[3] = c3;
}

#endif
