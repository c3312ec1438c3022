/* Runs a function of class R over a range of all 2^32 inputs: exhaustive NAME [FIRST [COUNT [LEVEL]]]
 *
 * The authority is the double function of the C library, of which an error of 2^-45 is believed (its documented
 * errors are 250 times smaller). Where the result is certain all the same, it is compared with ours: a line
 * "wrong INPUT RESULT WANTED" for each that differs. Where it is not, a line "judge INPUT RESULT": whoever called
 * decides with more digits. The last line is "done COUNT". Numbers are bits in hexadecimal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../functions/float_functions.h"
#include "../kernels.h"
#include "../simd_level.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }
static double reciprocal(double x) { return 1 / x; }

#define AUTHORITY(name) {#name, name},
static const struct {
    const char *name;
    double (*authority)(double);
} table[] = {ALL_FUNCTIONS(AUTHORITY)};

int main(int argc, char **argv) {
    enum { PIECE = 4096 };
    static float x[PIECE], y[PIECE];
    int function = -1;
    for (int i = 0; i < FUNCTIONS && argc > 1; i++)
        if (!strcmp(argv[1], table[i].name)) function = i;
    uint64_t first = argc > 2 ? strtoull(argv[2], 0, 0) : 0, count = argc > 3 ? strtoull(argv[3], 0, 0) : 1ULL << 32;
    if (function < 0 || first % PIECE || count % PIECE || first + count > 1ULL << 32) return 2;
    for (int level = 0; argc > 4 && samerun_simd_level_name(level); level++)
        if (!strcmp(argv[4], samerun_simd_level_name(level)) && !samerun_try_force_simd_level(level)) return 2;
    double (*authority)(double) = table[function].authority;
    for (uint64_t from = first; from < first + count; from += PIECE) {
        for (int i = 0; i < PIECE; i++) x[i] = float_from_bits((uint32_t)(from + (uint64_t)i));
        samerun_current_kernels()->function[function](x, y, PIECE);
        for (int i = 0; i < PIECE; i++) {
            const double wide = authority(x[i]);
            const float low = (float)(wide * (1 - 0x1p-45)), high = (float)(wide * (1 + 0x1p-45));
            if (isnan(wide) ? isnan(y[i])
                            : bits_of_float(y[i]) == bits_of_float(low) && bits_of_float(low) == bits_of_float(high))
                continue;
            if (isnan(wide) || bits_of_float(low) == bits_of_float(high))
                printf("wrong %08x %08x %08x\n", bits_of_float(x[i]), bits_of_float(y[i]), bits_of_float(low));
            else printf("judge %08x %08x\n", bits_of_float(x[i]), bits_of_float(y[i]));
        }
    }
    printf("done %llu\n", (unsigned long long)count);
    return 0;
}
