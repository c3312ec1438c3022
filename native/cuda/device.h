/* What portable.h and the functions take from a C compiler, in NVRTC's words. NVRTC brings no headers of its own.
 *
 * The intrinsics ending in _rn round to nearest whatever the flags are, and are never merged into an fma.
 */
#ifndef SAMERUN_CUDA_DEVICE_H
#define SAMERUN_CUDA_DEVICE_H

typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned short uint16_t;
typedef unsigned char uint8_t;

#define __builtin_fmaf __fmaf_rn
#define __builtin_fma __fma_rn
#define __builtin_sqrtf __fsqrt_rn
#define __builtin_sqrt __dsqrt_rn
#define __builtin_fabsf fabsf
#define __builtin_fabs fabs
#define __builtin_copysignf copysignf
#define __builtin_isinf isinf
#define __builtin_inff() __int_as_float(0x7F800000)
#define __builtin_inf() __longlong_as_double(0x7FF0000000000000LL)
#define __builtin_nan(text) __longlong_as_double(0x7FF8000000000000LL)

#endif
