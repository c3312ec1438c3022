/* Tiles of direct convolutions on AVX-512: up to 14 pixels of 32 channels. */
#include "direct_convolution.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET_ISA __attribute__((target("avx512f,avx2,fma")))
enum { LANES = SAMERUN_DIRECT_LANES, VECTORS = SAMERUN_DIRECT_VECTORS, PIXELS = SAMERUN_DIRECT_PIXELS };

/* Sums are in registers only if all loops over them are unrolled. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif

#define PIXELS_FROM(first, behind)                                              \
    UNROLLED for (int p = 0; p < pixels; p++) if (p >= (first) && p < (behind)) \
        UNROLLED for (int v = 0; v < vectors; v++) sum[p][v] =                  \
            _mm512_fmadd_ps(_mm512_set1_ps(x[p * image_step]), weight[v], sum[p][v])

static inline
    __attribute__((always_inline)) TARGET_ISA void accumulate_pixel_tile(const samerun_direct_tile_args *tile_args,
                                                                         const int pixels, const int vectors,
                                                                         const int64_t image_step) {
    __m512 sum[PIXELS][VECTORS];
    UNROLLED for (int p = 0; p < pixels; p++) UNROLLED for (int v = 0; v < vectors; v++) sum[p][v] =
        _mm512_setzero_ps();
    const int64_t taps = tile_args->taps, width = vectors * LANES;
    for (int64_t channel = tile_args->k / taps, k = channel * taps; k < tile_args->end; channel++, k += taps) {
        const samerun_direct_tap *tap = tile_args->taps_of_tile, *last = tile_args->taps_of_tile + tile_args->count;
        if (k < tile_args->k)
            while (tap < last && k + tap->tap_number < tile_args->k) tap++;
        if (k + taps > tile_args->end)
            while (tap < last && k + last[-1].tap_number >= tile_args->end) last--;
        const float *const weights = tile_args->weight + k * width, *const image =
                                                                        tile_args->image + channel * tile_args->area;
        for (; tap < last; tap++) {
            const float *const x = image + tap->image_offset, *const w = weights + tap->tap_number * width;
            __m512 weight[VECTORS];
            UNROLLED for (int v = 0; v < vectors; v++) weight[v] = _mm512_loadu_ps(w + v * LANES);
            if (tap->pixel_coverage == SAMERUN_ALL) {
                PIXELS_FROM(0, pixels);
                continue;
            }
            switch (tap->pixel_coverage) { /* what the compiler knows costs no comparisons */
            case SAMERUN_ALL_BUT_FIRST: PIXELS_FROM(1, pixels); break;
            case SAMERUN_ALL_BUT_FIRST + 1: PIXELS_FROM(2, pixels); break;
            case SAMERUN_ALL_BUT_FIRST + 2: PIXELS_FROM(3, pixels); break;
            case SAMERUN_ALL_BUT_LAST: PIXELS_FROM(0, pixels - 1); break;
            case SAMERUN_ALL_BUT_LAST + 1: PIXELS_FROM(0, pixels - 2); break;
            case SAMERUN_ALL_BUT_LAST + 2: PIXELS_FROM(0, pixels - 3); break;
            default: PIXELS_FROM(tap->from, tap->to);
            }
        }
    }
    UNROLLED for (int p = 0; p < pixels; p++) UNROLLED for (int v = 0; v < vectors; v++) {
        float *const to = tile_args->sums + p * tile_args->sums_step + v * LANES;
        _mm512_storeu_ps(to, tile_args->k ? _mm512_add_ps(_mm512_loadu_ps(to), sum[p][v]) : sum[p][v]);
    }
}

#define EACH_SIZE(of) \
    SIZE(1, of)       \
    SIZE(2, of)       \
    SIZE(3, of)       \
    SIZE(4, of)       \
    SIZE(5, of)       \
    SIZE(6, of) SIZE(7, of) SIZE(8, of) SIZE(9, of) SIZE(10, of) SIZE(11, of) SIZE(12, of) SIZE(13, of) SIZE(14, of)

/* step 3: any, which then takes an address of each pixel. */
#define SIZE(pixels, step)                                                                         \
    static __attribute__((noinline)) TARGET_ISA void pixel_tile_##pixels##_##step(                 \
        const samerun_direct_tile_args *tile_args, int vectors, int64_t any_step) {                \
        if (vectors == 2) accumulate_pixel_tile(tile_args, pixels, 2, step < 3 ? step : any_step); \
        else accumulate_pixel_tile(tile_args, pixels, 1, step < 3 ? step : any_step);              \
    }
EACH_SIZE(1)
EACH_SIZE(2)
EACH_SIZE(3)
#undef SIZE

typedef void pixel_tile_of_size(const samerun_direct_tile_args *tile_args, int vectors, int64_t any_step);
#define SIZE(pixels, step) pixel_tile_##pixels##_##step,
static pixel_tile_of_size *const tiles[3][PIXELS] = {{EACH_SIZE(1)}, {EACH_SIZE(2)}, {EACH_SIZE(3)}};
#undef SIZE

void samerun_accumulate_direct_pixel_tile(const samerun_direct_tile_args *tile_args, int pixels, int vectors,
                                          int64_t image_step) {
    tiles[image_step < 3 ? image_step - 1 : 2][pixels - 1](tile_args, vectors, image_step);
}

static inline __attribute__((always_inline)) TARGET_ISA void accumulate_weight_gradient_tile(
    const samerun_weight_gradient_tile_args *tile_args, const int columns, const int vectors) {
    __m512 sum[PIXELS][VECTORS], gradient[VECTORS];
    const float *g = tile_args->gradient;
    const int64_t *const offset = tile_args->offset, step = tile_args->step;
    UNROLLED for (int c = 0; c < columns; c++) UNROLLED for (int v = 0; v < vectors; v++) sum[c][v] =
        _mm512_setzero_ps();
    for (int64_t line = 0; line < tile_args->lines; line++) {
        const float *x = tile_args->image + tile_args->line[line].image_offset;
        for (const float *const end = g + tile_args->line[line].pixels * vectors * LANES; g < end;
             x += step, g += vectors * LANES) {
            UNROLLED for (int v = 0; v < vectors; v++) gradient[v] = _mm512_loadu_ps(g + v * LANES);
            UNROLLED for (int c = 0; c < columns; c++) UNROLLED for (int v = 0; v < vectors; v++) sum[c][v] =
                _mm512_fmadd_ps(_mm512_set1_ps(x[offset[c]]), gradient[v], sum[c][v]);
        }
    }
    UNROLLED for (int c = 0; c < columns; c++) UNROLLED for (int v = 0; v < vectors; v++) {
        float *const to = tile_args->sums + (c * vectors + v) * LANES;
        _mm512_storeu_ps(to, tile_args->accumulate ? _mm512_add_ps(_mm512_loadu_ps(to), sum[c][v]) : sum[c][v]);
    }
}

#define SIZE(columns, vectors)                                                                   \
    static __attribute__((noinline)) TARGET_ISA void weight_gradient_tile_##columns##_##vectors( \
        const samerun_weight_gradient_tile_args *tile_args) {                                    \
        accumulate_weight_gradient_tile(tile_args, columns, vectors);                            \
    }
EACH_SIZE(1)
EACH_SIZE(2)
#undef SIZE

typedef void weight_gradient_tile_of_size(const samerun_weight_gradient_tile_args *tile_args);
#define SIZE(columns, vectors) weight_gradient_tile_##columns##_##vectors,
static weight_gradient_tile_of_size *const gradients[VECTORS][PIXELS] = {{EACH_SIZE(1)}, {EACH_SIZE(2)}};
#undef SIZE

void samerun_accumulate_weight_gradient_tile(const samerun_weight_gradient_tile_args *tile_args, int columns,
                                             int vectors) {
    gradients[vectors - 1][columns - 1](tile_args);
}

/* r[i] has column i of what were its rows. */
static inline __attribute__((always_inline)) TARGET_ISA void transpose_16x16(__m512 rows[LANES]) {
    __m512 t[LANES];
    UNROLLED for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    UNROLLED for (int i = 0; i < 16; i += 4) { /* columns q, q + 4, q + 8, q + 12 of rows i to i + 3 */
        rows[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        rows[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
        rows[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        rows[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    UNROLLED for (int q = 0; q < 4; q++) { /* columns q and q + 8, q + 4 and q + 12 of eight rows */
        t[q] = _mm512_shuffle_f32x4(rows[q], rows[q + 4], 0x88);
        t[q + 4] = _mm512_shuffle_f32x4(rows[q], rows[q + 4], 0xDD);
        t[q + 8] = _mm512_shuffle_f32x4(rows[q + 8], rows[q + 12], 0x88);
        t[q + 12] = _mm512_shuffle_f32x4(rows[q + 8], rows[q + 12], 0xDD);
    }
    UNROLLED for (int q = 0; q < 4; q++) {
        rows[q] = _mm512_shuffle_f32x4(t[q], t[q + 8], 0x88);
        rows[q + 8] = _mm512_shuffle_f32x4(t[q], t[q + 8], 0xDD);
        rows[q + 4] = _mm512_shuffle_f32x4(t[q + 4], t[q + 12], 0x88);
        rows[q + 12] = _mm512_shuffle_f32x4(t[q + 4], t[q + 12], 0xDD);
    }
}

TARGET_ISA int samerun_transpose_and_find_negative_zero(float *dst, int64_t dst_step, const float *src, int64_t src_step,
                                                   int64_t rows, int64_t columns, const float *bias_or_null) {
    const __m512i negative_zero = _mm512_set1_epi32((int)0x80000000);
    int has_negative_zero = 0;
    for (int64_t i = 0; i < rows; i += LANES)
        for (int64_t j = 0; j < columns; j += LANES) {
            const int down = (int)(rows - i < LANES ? rows - i : LANES);
            const int across = (int)(columns - j < LANES ? columns - j : LANES);
            const __mmask16 kept = (__mmask16)((1U << down) - 1), read = (__mmask16)((1U << across) - 1);
            const float *const src_tile = src + i * src_step + j;
            float *const dst_tile = dst + j * dst_step + i;
            __m512 r[LANES];
            UNROLLED for (int q = 0; q < LANES; q++) r[q] =
                q < down ? _mm512_maskz_loadu_ps(read, src_tile + q * src_step) : _mm512_setzero_ps();
            transpose_16x16(r);
            UNROLLED for (int q = 0; q < LANES; q++) {
                if (q >= across) continue;
                has_negative_zero |= _mm512_mask_cmpeq_epi32_mask(kept, _mm512_castps_si512(r[q]), negative_zero);
                if (bias_or_null) r[q] = _mm512_add_ps(r[q], _mm512_set1_ps(bias_or_null[j + q]));
                if (down == LANES) _mm512_storeu_ps(dst_tile + q * dst_step, r[q]);
                else _mm512_mask_storeu_ps(dst_tile + q * dst_step, kept, r[q]);
            }
        }
    return has_negative_zero != 0;
}

#endif
