/* Whether what is tried in single precision has the bits of double precision: singles NAME [FIRST [COUNT]]
 *
 * NAME is one of ../float32_fast_path.inc: exp, sigmoid, log, erf, or an activation made of them. Both ways run over all
 * 2^32 inputs, or COUNT from the one with bits FIRST on, at every level of this machine that has them. A line "wrong
 * INPUT RESULT WANTED" for each that differs, the last is "done COUNT wrong HOW_MANY". Numbers are bits in hexadecimal,
 * but for these two.
 */
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi2"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,bmi2")
#endif
#define LEVEL wide
#define VECTOR 32
#include "../kernels.inc"
#include "../simd_level.h"

extern const kernels_t samerun_kernels_avx2, samerun_kernels_avx512;

enum { AT_ONCE = 4096, MOST_SHOWN = 100 };

static void run(const kernels_t *kernels, const char *name, const float *x, float *y) {
#define FUNCTION(f) \
    if (!strcmp(name, #f)) kernels->function[FUNCTION_##f](x, y, AT_ONCE);
#define ACTIVATION(f, number) \
    if (!strcmp(name, f)) kernels->activation(number, x, ones, y, AT_ONCE);
    static float ones[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) ones[i] = 1;
    FUNCTION(exp)
    FUNCTION(sigmoid)
    FUNCTION(log)
    FUNCTION(erf)
    ACTIVATION("gelu", GELU)
    ACTIVATION("silu", SILU) ACTIVATION("gelu_backward", GELU_BACKWARD) ACTIVATION("silu_backward", SILU_BACKWARD)
}

int main(int argc, char **argv) {
    static const char *const names[] = {"exp",  "sigmoid", "log",           "erf",
                                        "gelu", "silu",    "gelu_backward", "silu_backward"};
    static float x[AT_ONCE], y[AT_ONCE], wanted[AT_ONCE];
    const char *name = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && argc > 1; i++)
        if (!strcmp(argv[1], names[i])) name = names[i];
    const uint64_t first = argc > 2 ? strtoull(argv[2], 0, 0) : 0;
    const uint64_t count = argc > 3 ? strtoull(argv[3], 0, 0) : 1ULL << 32;
    if (!name || first % AT_ONCE || count % AT_ONCE || first + count > 1ULL << 32) return 2;
    const kernels_t *const levels[] = {&samerun_kernels_avx2, &samerun_kernels_avx512};
    const int here = samerun_simd_level_is_supported(LEVEL_AVX512) ? 2 : 1;
    uint64_t wrong = 0;
    for (uint64_t from = first; from < first + count; from += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) x[i] = float_from_bits((uint32_t)(from + (uint64_t)i));
        run(&samerun_kernels_wide, name, x, wanted);
        for (int level = 0; level < here; level++) {
            run(levels[level], name, x, y);
            if (!memcmp(y, wanted, sizeof y)) continue;
            for (int i = 0; i < AT_ONCE; i++)
                if (bits_of_float(y[i]) != bits_of_float(wanted[i]) && !(y[i] != y[i] && wanted[i] != wanted[i]) &&
                    wrong++ < MOST_SHOWN)
                    printf("wrong %08x %08x %08x\n", bits_of_float(x[i]), bits_of_float(y[i]),
                           bits_of_float(wanted[i]));
        }
    }
    printf("done %llu wrong %llu\n", (unsigned long long)count, (unsigned long long)wrong);
    return wrong > 0;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
int main(void) { return 2; }
#endif
