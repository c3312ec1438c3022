/* The table of one-argument functions of class R, and the float functions made of it.
 *
 * EXCEPTIONS_name lists the inputs where the double is too close to the middle of two floats to be rounded right:
 * bits of the input, bits of the correctly rounded result. They come from running all 2^32 inputs
 * (tests/numerics/kernels/test_numerics_exhaustive.py), which also proves that there are no others.
 */
#ifndef SAMERUN_FUNCTIONS_FLOAT_FUNCTIONS_H
#define SAMERUN_FUNCTIONS_FLOAT_FUNCTIONS_H

#include "trigonometric.h"
#include "exceptions.h"
#include "exponential.h"
#include "logarithm.h"
#include "erf_and_roots.h"

/* One formula for every value, and those with a core. The order is the number of a function: add at the end. */
#define PLAIN_FUNCTIONS(F) \
    F(exp)                 \
    F(exp2) F(expm1) F(sinh) F(cosh) F(tanh) F(asin) F(acos) F(atan) F(erf) F(erfc) F(rsqrt) F(reciprocal) F(cbrt)
#define CORE_FUNCTIONS(F) F(sigmoid) F(log) F(log2) F(log10) F(log1p) F(asinh) F(acosh) F(atanh) F(sin) F(cos) F(tan)
#define ALL_FUNCTIONS(F) PLAIN_FUNCTIONS(F) CORE_FUNCTIONS(F)

#define NUMBER_OF(name) FUNCTION_##name,
enum { ALL_FUNCTIONS(NUMBER_OF) FUNCTIONS };

#define IF_LISTED(input, result) y = bits_of_float(x) == (input) ? float_from_bits(result) : y;
#define OR_LISTED(input, result) | (bits_of_float(x) == (input))
#define TO_FLOAT(name)                                 \
    PORTABLE int name##_is_listed_exception(float x) { \
        (void)x;                                       \
        return 0 EXCEPTIONS_##name(OR_LISTED);         \
    }                                                  \
    PORTABLE float name##_float(float x) {             \
        float y = (float)name##_of_widened_float(x);   \
        EXCEPTIONS_##name(IF_LISTED) return y;         \
    }
ALL_FUNCTIONS(TO_FLOAT)

#endif
