#include "simd_level.h"

#include <stdint.h>

#include "portable.h"
#include "x86_features.h"

static int forced = -1;

const char *samerun_simd_level_name(int level) {
#if defined(__x86_64__)
    static const char *const names[] = {"plain", "avx2", "avx512"};
#elif defined(__aarch64__)
    static const char *const names[] = {"neon"};
#else
    static const char *const names[] = {"plain"};
#endif
    return level < 0 || level >= LEVELS ? 0 : names[level];
}

int samerun_simd_level_is_supported(int level) {
    if (level == LEVEL_PLAIN) return 1;
#if defined(__x86_64__)
    if (level == LEVEL_AVX2) return x86_has_avx2();
    if (level == LEVEL_AVX512) return x86_has_avx512();
#endif
    return 0;
}

int samerun_current_simd_level(void) {
    static int best = -1;
    int level = __atomic_load_n(&forced, __ATOMIC_RELAXED);
    if (level >= 0) return level;
    level = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (level < 0) {
        for (level = LEVELS - 1; !samerun_simd_level_is_supported(level);) level--;
        __atomic_store_n(&best, level, __ATOMIC_RELAXED);
    }
    return level;
}

int samerun_try_force_simd_level(int level_or_minus_1_for_best) {
    if (level_or_minus_1_for_best != -1 && !samerun_simd_level_is_supported(level_or_minus_1_for_best)) return 0;
    __atomic_store_n(&forced, level_or_minus_1_for_best, __ATOMIC_RELAXED);
    return 1;
}

int samerun_arithmetic_is_ieee(void) {
    const uint16_t one = 1;
    volatile double a = 1 + 0x1p-52, b = 1 - 0x1p-52, c = -1;
    volatile float x = 1 + 0x1p-23f, y = 1 - 0x1p-23f, z = -1;
    return *(const uint8_t *)&one == 1 && a * b + c == 0 && fma64(a, b, c) == -0x1p-104 && x * y + z == 0 &&
           fma32(x, y, z) == -0x1p-46f;
}
