#include "kernels.h"

#include "simd_level.h"

extern const kernels_t samerun_kernels_plain, samerun_kernels_avx2, samerun_kernels_avx512;

const kernels_t *samerun_current_kernels(void) {
#if defined(__x86_64__)
    static const kernels_t *const of_level[LEVELS] = {&samerun_kernels_plain, &samerun_kernels_avx2,
                                                      &samerun_kernels_avx512};
    return of_level[samerun_current_simd_level()];
#else
    return &samerun_kernels_plain;
#endif
}
