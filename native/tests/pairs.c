/* Runs pow, atan2 or hypot on random pairs: pairs NAME COUNT SEED
 *
 * The authority is the long double function of the C library (64 bits on x86), of which an error of 2^-55 is
 * believed. Output as in exhaustive.c, with two inputs: "wrong X Y RESULT WANTED", "judge X Y RESULT", "done COUNT".
 * Half of the pairs are of moderate size, half of any bits (for pow: y such that the result is in range).
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../functions/binary_functions.h"

int main(int argc, char **argv) {
    static const char *const names[] = {"pow", "atan2", "hypot"};
    if (argc < 4 || LDBL_MANT_DIG < 64) return 2;
    int function = 0;
    while (function < 3 && strcmp(argv[1], names[function])) function++;
    if (function == 3) return 2;
    const uint64_t count = strtoull(argv[2], 0, 0), seed = strtoull(argv[3], 0, 0);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t w[4];
        philox4x32_10(seed, (uint64_t)function, i, w);
        float x, y;
        if (i % 2) {
            x = float_from_bits((w[0] & 0x807FFFFFU) | (127 - 8 + w[2] % 16) << 23);
            y = float_from_bits((w[1] & 0x807FFFFFU) | (127 - 8 + w[3] % 16) << 23);
        } else {
            x = float_from_bits(w[0]), y = float_from_bits(w[1]);
            if (function == 0) y = (float)(((double)w[1] * 0x1p-32 - 0.5) * 300 / log2(fabs((double)x)));
        }
        if (function == 0 && x < 0) x = -x;
        const float got = function == 0 ? pow_float(x, y) : function == 1 ? atan2_float(x, y) : hypot_float(x, y);
        const long double wide = function == 0 ? powl(x, y) : function == 1 ? atan2l(x, y) : hypotl(x, y);
        const float low = (float)(wide * (1 - 0x1p-55L)), high = (float)(wide * (1 + 0x1p-55L));
        if (isnan(wide) ? isnan(got)
                        : bits_of_float(got) == bits_of_float(low) && bits_of_float(low) == bits_of_float(high))
            continue;
        if (isnan(wide) || bits_of_float(low) == bits_of_float(high))
            printf("wrong %08x %08x %08x %08x\n", bits_of_float(x), bits_of_float(y), bits_of_float(got),
                   bits_of_float(low));
        else printf("judge %08x %08x %08x\n", bits_of_float(x), bits_of_float(y), bits_of_float(got));
    }
    printf("done %llu\n", (unsigned long long)count);
    return 0;
}
