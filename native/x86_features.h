/* What the x86 processor has and the system saves, asked of CPUID itself. __builtin_cpu_supports asks the compiler's own
 * library, and the one of `zig cc`, which builds the wheels, answers 0 to everything. */
#ifndef SAMERUN_X86_FEATURES_H
#define SAMERUN_X86_FEATURES_H

#if defined(__x86_64__)
#include <cpuid.h>

/* 1 if CPUID leaf 7 has all of `wanted` in EBX, on top of FMA, and XCR0 has all of `saved`. */
static inline int x86_has_features(unsigned leaf7_ebx_bits, unsigned xcr0_bits) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 0;
    if (!(ecx & bit_FMA) || !(ecx & bit_OSXSAVE)) return 0; /* without OSXSAVE, XGETBV is an invalid instruction */
    __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    if ((eax & xcr0_bits) != xcr0_bits) return 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & leaf7_ebx_bits) == leaf7_ebx_bits;
}

/* AVX2, FMA and BMI2; the system saves xmm and ymm. */
static inline int x86_has_avx2(void) { return x86_has_features((unsigned)bit_AVX2 | (unsigned)bit_BMI2, 0x06); }

/* The same with AVX-512 F, DQ, BW and VL; the system saves mask registers and zmm, too. */
static inline int x86_has_avx512(void) {
    return x86_has_features((unsigned)bit_AVX2 | (unsigned)bit_BMI2 | (unsigned)bit_AVX512F | (unsigned)bit_AVX512DQ |
                                (unsigned)bit_AVX512BW | (unsigned)bit_AVX512VL,
                            0xe6);
}
#endif

#endif
