/* Prints the conformance vectors as this machine computes them: conformance [LEVEL]
 *
 * No Python, no torch: for other architectures, emulators and sanitizers. The lines must be those of
 * src/samerun/numerics/verification/vectors.txt, which tools/conformance.py wrote and explains.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../functions/float_functions.h"
#include "../kernels.h"
#include "../simd_level.h"
#include "../thread_pool.h"
#include "../sums.h"

void samerun_map_function(int function, const float *x, float *y, int64_t n);
void samerun_map_binary_function(int function, const float *x, const float *y, float *out, int64_t n);
void samerun_map_activation(int activation, const float *x, const float *grad_or_null, float *out, int64_t n);
void samerun_softmax_family_rows(int function, const float *input_or_output, const float *grad_output, float *result,
                                 int64_t rows, int64_t n);
void samerun_normalize_rows(int is_rms_norm, float eps, const float *x, const float *weight_or_null,
                            const float *bias_or_null, float *out, float *mean, float *rstd, int64_t rows, int64_t n,
                            int64_t weight_row_period, int64_t values_per_weight);
void samerun_normalize_rows_backward(int is_rms_norm, const float *x, const float *grad_output,
                                     const float *weight_or_null, const float *mean, const float *rstd,
                                     float *grad_input, float *weight_grad_terms_or_null, int64_t rows, int64_t n,
                                     int64_t weight_row_period, int64_t values_per_weight);
void samerun_random_floats(int normal, uint64_t seed, uint64_t draw_number, float *out, int64_t n);
void samerun_square_roots(int is_double, const void *x, void *out, int64_t n);
void samerun_remainders(int is_double, int floored, const void *x, const void *y, void *out, int64_t n);
void samerun_random_words64(uint64_t seed, uint64_t draw_number, uint64_t *out, int64_t n);
void samerun_random_block_words(uint64_t seed, uint64_t draw_number, const uint64_t *block_indices, uint64_t *out,
                                int64_t n);
void samerun_randint(uint64_t seed, uint64_t draw_number, int64_t low, uint64_t range, int64_t *out, int64_t n);
void samerun_map_float64_function(int function, const double *x, double *out, uint8_t *in_doubt, int64_t n);
void samerun_map_float64_binary_function(int function, const double *x, const double *y, double *out, uint8_t *in_doubt,
                                         int64_t n);
const char *samerun_function_name(int i);
int samerun_matmul(int is_double, const int64_t *dims, const void *a, const void *b, void *c, const void *bias_or_null);
int samerun_convolution(int direction, int is_double, const int64_t *packed_shape, const void *image,
                        const void *weight, const void *gradient, const void *bias_or_null, void *result);

/* SHA-256 (FIPS 180-4) of at most 2^31 bytes. */
static uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(uint32_t h[8], const uint8_t *data) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    };
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 | data[4 * i + 2] << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t e = v[4], a = v[0];
        const uint32_t t = v[7] + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
                           ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        const uint32_t u = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
                           ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t, v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

static void print_digest_line(const char *name, const char *type, int64_t n, const void *data, size_t size) {
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *at = data;
    uint8_t tail[128] = {0};
    size_t left = size;
    for (; left >= 64; left -= 64, at += 64) sha256_block(h, at);
    if (left) memcpy(tail, at, left);
    tail[left] = 0x80;
    const size_t end = left < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++) tail[end - 1 - (size_t)i] = (uint8_t)((uint64_t)size * 8 >> 8 * i);
    for (size_t from = 0; from < end; from += 64) sha256_block(h, tail + from);
    printf("%s %s %lld ", name, type, (long long)n);
    for (int i = 0; i < 8; i++) printf("%08x", h[i]);
    printf("\n");
}

/* Every NaN is the same one. */
static void print_float32_digest_line(const char *name, int64_t n, float *out, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (out[i] != out[i]) out[i] = float_from_bits(0x7FC00000U);
    print_digest_line(name, "float32", n, out, (size_t)count * sizeof *out);
}
static void print_float64_digest_line(const char *name, int64_t n, double *out, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (out[i] != out[i]) out[i] = double_from_bits(0x7FF8000000000000U);
    print_digest_line(name, "float64", n, out, (size_t)count * sizeof *out);
}

enum { SEED = 20261121, MOST = 10007, ROWS = 3, COLUMNS = 9, FLOAT64_MOST = 33 };

static void fill_with_philox(uint64_t draw_number, int any, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t words[4];
        philox4x32_10(SEED, draw_number, (uint64_t)i / 4, words);
        const uint32_t word = words[i % 4];
        out[i] = any ? float_from_bits(word) : ((float)(word >> 8) * 0x1p-24f - 0.5f) * 16;
    }
}

static const char *const pairs[] = {"pow", "atan2", "hypot"};

/* Of doubles with 49 bits. A number in doubt is not C's to compute, and is none of these. */
static void print_float64_function_lines(int64_t n, const float *x, const float *y) {
    double a[FLOAT64_MOST], b[FLOAT64_MOST], out[FLOAT64_MOST];
    uint8_t in_doubt[FLOAT64_MOST];
    for (int64_t i = 0; i < n; i++) a[i] = (double)x[i] + y[i] * 0x1p-26, b[i] = (double)y[i] - x[i] * 0x1p-26;
    for (int f = 0; f < FUNCTIONS + BINARY_FUNCTIONS; f++) {
        if (f < FUNCTIONS) samerun_map_float64_function(f, a, out, in_doubt, n);
        else samerun_map_float64_binary_function(f - FUNCTIONS, a, b, out, in_doubt, n);
        for (int64_t i = 0; i < n; i++)
            if (in_doubt[i]) exit(3);
        print_float64_digest_line(f < FUNCTIONS ? samerun_function_name(f) : pairs[f - FUNCTIONS], n, out, n);
    }
}

static void print_elementwise_and_row_lines(int64_t n, const float *x, const float *y, const float *any) {
    static const char *const activations[] = {"gelu",          "gelu_tanh",          "silu",
                                              "gelu_backward", "gelu_tanh_backward", "silu_backward"};
    static const char *const functions[] = {"softmax", "log_softmax", "logsumexp", "softmax_backward",
                                            "log_softmax_backward"};
    static const char *const terms[] = {"sum", "sum_of_squares", "", "sum_of_sizes", "prod"};
    const int64_t one = 1, two = 2, matrix[] = {n, COLUMNS}, lines[] = {COLUMNS, 1};
    float *out = malloc(MOST * COLUMNS * sizeof *out), mean[ROWS] = {0.25f, 0.25f, 0.25f}, r[ROWS] = {1.5f, 1.5f, 1.5f};
    double *wide = malloc(MOST * sizeof *wide), *other = malloc(MOST * sizeof *other), wide_sum;
    int64_t *whole = malloc(MOST * sizeof *whole);
    uint64_t *words = malloc(MOST * 2 * sizeof *words);
    if (!out || !wide || !other || !whole || !words) exit(2);
    for (int f = 0; f < FUNCTIONS; f++)
        samerun_map_function(f, any, out, n), print_float32_digest_line(samerun_function_name(f), n, out, n);
    for (int f = 0; f < BINARY_FUNCTIONS; f++)
        samerun_map_binary_function(f, x, y, out, n), print_float32_digest_line(pairs[f], n, out, n);
    for (int f = 0; f < ACTIVATIONS; f++)
        samerun_map_activation(f, x, y, out, n), print_float32_digest_line(activations[f], n, out, n);
    for (int f = 0; f < SOFTMAX_FAMILY; f++) {
        samerun_softmax_family_rows(f, x, y, out, ROWS, n);
        print_float32_digest_line(functions[f], n, out, f == LOGSUMEXP ? ROWS : ROWS * n);
    }
    for (int rms = 0; rms < 2; rms++) {
        float means[ROWS], rs[ROWS];
        samerun_normalize_rows(rms, 1e-5f, x, NULL, NULL, out, means, rs, ROWS, n, 1, 1);
        print_float32_digest_line(rms ? "rms_norm" : "layer_norm", n, out, ROWS * n);
        if (rms) memset(mean, 0, sizeof mean);
        samerun_normalize_rows_backward(rms, x, y, NULL, mean, r, out, NULL, ROWS, n, 1, 1);
        print_float32_digest_line(rms ? "rms_norm_backward" : "layer_norm_backward", n, out, ROWS * n);
    }
    for (int t = 0; t < TERMS; t++)
        if (t != TERM_SQUARE_FROM_CENTER)
            samerun_sum32(t, x, NULL, out, 1, &n, &one, 1), print_float32_digest_line(terms[t], n, out, 1);
    samerun_sum32(TERM_X, x, NULL, out, 1, &n, &two, 1), print_float32_digest_line("sum_of_every_other", n, out, 1);
    samerun_sum32(TERM_X, x, NULL, out, 2, matrix, lines, 1),
        print_float32_digest_line("sum_of_columns", n, out, COLUMNS);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)x[i] * y[i];
    samerun_sum64(TERM_X, wide, NULL, &wide_sum, 1, &n, &one, 1), print_float64_digest_line("sum", n, &wide_sum, 1);
    samerun_cumulate32(0, x, out, 1, n, 1), print_float32_digest_line("cumsum", n, out, n);
    samerun_cumulate32(1, x, out, 1, n, 1), print_float32_digest_line("cumprod", n, out, n);
    samerun_random_floats(0, SEED, 7, out, n), print_float32_digest_line("uniform", n, out, n);
    samerun_random_floats(1, SEED, 7, out, n), print_float32_digest_line("normal", n, out, n);
    samerun_randint(SEED, 7, -5, 1005, whole, n),
        print_digest_line("randint", "int64", n, whole, (size_t)n * sizeof *whole);
    samerun_square_roots(0, any, out, n), print_float32_digest_line("sqrt", n, out, n);
    for (int64_t i = 0; i < n; i++) wide[i] = x[i] < 0 ? -(double)x[i] : (double)x[i];
    samerun_square_roots(1, wide, wide, n), print_float64_digest_line("sqrt", n, wide, n);
    for (int floored = 0; floored < 2; floored++) {
        samerun_remainders(0, floored, any, y, out, n),
            print_float32_digest_line(floored ? "remainder" : "fmod", n, out, n);
        for (int64_t i = 0; i < n; i++) wide[i] = x[i] * 0x1p40, other[i] = y[i];
        samerun_remainders(1, floored, wide, other, wide, n),
            print_float64_digest_line(floored ? "remainder" : "fmod", n, wide, n);
    }
    samerun_random_words64(SEED, 7, words, n);
    for (int64_t i = 0; i < n; i++) words[i] ^= 1ULL << 63;
    print_digest_line("randint_of_64_bits", "int64", n, words, (size_t)n * sizeof *words);
    for (int64_t i = 0; i < n; i++) whole[i] = 3 * i;
    samerun_random_block_words(SEED, 7, (uint64_t *)whole, words, n);
    print_digest_line("block_words", "int64", n, words, (size_t)n * 2 * sizeof *words);
    if (n <= FLOAT64_MOST) print_float64_function_lines(n, x, y);
    free(out), free(wide), free(other), free(whole), free(words);
}

/* [m, k] @ [k, columns], both with their strides, to a contiguous result. */
static void matmul_or_exit(int is_double, int64_t m, int64_t columns, int64_t k, const int64_t strides[4],
                           const void *a, const void *b, const void *bias, void *out) {
    const int64_t dims[16] = {1,          m,          columns, k,       0, strides[0], strides[1], 0,
                              strides[2], strides[3], 0,       columns, 1, 0,          0,          1};
    if (samerun_matmul(is_double, dims, a, b, out, bias)) exit(2);
}

/* Class M with n as k, and with n as the number of rows. */
static void print_matmul_lines(int64_t n, const float *x, const float *y, const float *any) {
    float small[COLUMNS * ROWS], plus[ROWS], *out = malloc((size_t)(n * COLUMNS * ROWS + COLUMNS * ROWS) * sizeof *out);
    double *a = malloc((size_t)(n + 1) * sizeof *a), *b = malloc((size_t)(n * ROWS + 1) * sizeof *b), three[ROWS];
    if (!out || !a || !b) exit(2);
    fill_with_philox(3, 0, small, COLUMNS * ROWS), fill_with_philox(4, 0, plus, ROWS);
    for (int64_t i = 0; i < n; i++) a[i] = x[i];
    for (int64_t i = 0; i < n * ROWS; i++) b[i] = y[i];
    matmul_or_exit(0, ROWS, COLUMNS, n, (int64_t[]){n, 1, COLUMNS, 1}, x, y, NULL, out);
    print_float32_digest_line("product", n, out, ROWS * COLUMNS);
    matmul_or_exit(1, 1, ROWS, n, (int64_t[]){n, 1, ROWS, 1}, a, b, NULL, three);
    print_float64_digest_line("product", n, three, ROWS);
    matmul_or_exit(0, COLUMNS, ROWS, n, (int64_t[]){1, COLUMNS, 1, n}, x, y, NULL, out);
    print_float32_digest_line("product_of_columns", n, out, ROWS * COLUMNS);
    matmul_or_exit(0, n, ROWS, COLUMNS, (int64_t[]){COLUMNS, 1, ROWS, 1}, x, small, plus, out);
    print_float32_digest_line("product_plus_bias", n, out, n * ROWS);
    matmul_or_exit(0, 1, COLUMNS, n, (int64_t[]){n, 1, 1, n}, x, y, NULL, out);
    print_float32_digest_line("product_of_one_row", n, out, COLUMNS);
    matmul_or_exit(0, n, COLUMNS * ROWS, 1, (int64_t[]){1, 1, COLUMNS * ROWS, 1}, any, small, NULL, out);
    print_float32_digest_line("product_of_anything", n, out, n * COLUMNS * ROWS);
    free(out), free(a), free(b);
}

/* Of an image of n columns: two rows, three channels, every other column, borders on both sides. */
static void print_convolution_lines(int64_t n, const float *x) {
    const int64_t width = (n - 1) / 2 + 1;
    const int64_t packed_shape[22] = {1, 1, 3, 4, 1, 2, n, 1, 3, width, 1, 2, 3, 1, 1, 2, 0, 1, 1, 1, 1, 1};
    float weight[72], bias[4], *g = malloc((size_t)(12 * width) * sizeof *g);
    float *out = malloc((size_t)(12 * (n + width)) * sizeof *out), of_weight[72];
    if (!g || !out) exit(2);
    fill_with_philox(3, 0, weight, 72), fill_with_philox(4, 0, g, 12 * width), fill_with_philox(5, 0, bias, 4);
    if (samerun_convolution(0, 0, packed_shape, x, weight, NULL, bias, out)) exit(2);
    print_float32_digest_line("convolution", n, out, 12 * width);
    if (samerun_convolution(1, 0, packed_shape, NULL, weight, g, NULL, out)) exit(2);
    print_float32_digest_line("convolution_gradient_of_input", n, out, 6 * n);
    if (samerun_convolution(2, 0, packed_shape, x, NULL, g, NULL, of_weight)) exit(2);
    print_float32_digest_line("convolution_gradient_of_weight", n, of_weight, 72);
    free(g), free(out);
}

int main(int argc, char **argv) {
    static const int64_t sizes[] = {0, 1, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, MOST};
    static float x[MOST * COLUMNS], y[MOST * COLUMNS], any[MOST];
    int found = argc < 2;
    for (int level = 0; argc > 1 && samerun_simd_level_name(level); level++)
        if (!strcmp(argv[1], samerun_simd_level_name(level))) found = samerun_try_force_simd_level(level);
    if (!found || !samerun_arithmetic_is_ieee()) return 2;
    samerun_set_num_threads(3);
    fill_with_philox(0, 0, x, MOST * COLUMNS), fill_with_philox(1, 0, y, MOST * COLUMNS),
        fill_with_philox(2, 1, any, MOST);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        print_elementwise_and_row_lines(sizes[i], x, y, any);
        print_matmul_lines(sizes[i], x, y, any);
        if (sizes[i]) print_convolution_lines(sizes[i], x);
    }
    return 0;
}
