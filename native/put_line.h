/* Results of a channel written to their places. */
#ifndef SAMERUN_PUT_LINE_H
#define SAMERUN_PUT_LINE_H

#include "portable.h"

#define SAMERUN_PUT(type, bits, sign)                               \
    do {                                                            \
        const type plus = bias ? ((const type *)bias)[channel] : 0; \
        for (int64_t w = 0; w < n; w++) {                           \
            const type value = from ? ((const type *)from)[w] : 0;  \
            odd |= bits(value) == sign;                             \
            ((type *)to)[w * step] = bias ? value + plus : value;   \
        }                                                           \
    } while (0)

/* n results of a channel (NULL: zeros) to places a step apart, plus bias (or NULL). Whether one of them is -0.0. */
PORTABLE int samerun_write_line_plus_bias(const char *from, char *to, int64_t n, int64_t step, const void *bias,
                                          int64_t channel, size_t real) {
    int odd = 0;
    if (real == 8) SAMERUN_PUT(double, bits_of_double, 0x8000000000000000U);
    else SAMERUN_PUT(float, bits_of_float, 0x80000000U);
    return odd;
}
#undef SAMERUN_PUT

#endif
