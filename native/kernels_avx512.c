#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi2"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,bmi2")
#endif

#define LEVEL avx512
#define VECTOR 64
#define FLOAT32_FAST_PATH
#include "kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int nothing_for_this_architecture;
#endif
