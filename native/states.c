/* The states that Python's, NumPy's and torch's Mersenne Twisters have right after they were seeded.
 *
 * Each word of a state depends on the one before it, so one seeding is a single chain of dependent operations. Several
 * chains, interleaved as lanes, fill the waiting time (docs/decisions/0022). Only the words are written: the caller's
 * rows hold what surrounds them.
 */
#include <stdint.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* Inlined with constant arguments, so that each number of lanes is compiled by itself and a lane stays in registers. */
#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE static inline
#endif

enum { WORDS = 624, LANES = 4 };

static inline uint32_t xor_high_bits(uint32_t x) { return x ^ (x >> 30); }

ALWAYS_INLINE void store_word(uint8_t *row, int as_64_bits, uint32_t index, uint32_t word) {
    if (as_64_bits) ((uint64_t *)row)[index] = word;
    else ((uint32_t *)row)[index] = word;
}

/* The reference init_genrand: seeding from 32 bits, as NumPy and torch do. as_64_bits: torch saves each word as 64
 * bits. */
ALWAYS_INLINE void init_genrand_lanes(int lanes, int as_64_bits, const uint32_t *seeds, uint8_t **rows) {
    uint32_t x[LANES];
    for (int lane = 0; lane < lanes; lane++) {
        x[lane] = seeds[lane];
        store_word(rows[lane], as_64_bits, 0, x[lane]);
    }
    for (uint32_t i = 1; i < WORDS; i++)
        for (int lane = 0; lane < lanes; lane++) {
            x[lane] = 1812433253u * xor_high_bits(x[lane]) + i;
            store_word(rows[lane], as_64_bits, i, x[lane]);
        }
}

/* The reference init_by_array: seeding from an integer of one or two 32-bit words (two if it needs them), as Python
 * does. base_words: those that init_genrand gives for 19650218. */
ALWAYS_INLINE void init_by_array_lanes(int lanes, const uint32_t *base_words, const uint64_t *seeds, uint8_t **rows) {
    uint32_t x[LANES], odd[LANES], even[LANES];
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t low = (uint32_t)seeds[lane], high = (uint32_t)(seeds[lane] >> 32);
        x[lane] = base_words[0];
        odd[lane] = low;
        even[lane] = high ? high + 1 : low;
    }
    for (uint32_t i = 1; i < WORDS; i++)
        for (int lane = 0; lane < lanes; lane++) {
            x[lane] = (base_words[i] ^ (xor_high_bits(x[lane]) * 1664525u)) + (i & 1 ? odd[lane] : even[lane]);
            ((uint32_t *)rows[lane])[i] = x[lane];
        }
    for (int lane = 0; lane < lanes; lane++) { /* the 624th step wraps around to the first word */
        uint32_t *words = (uint32_t *)rows[lane];
        words[1] = x[lane] = (words[1] ^ (xor_high_bits(x[lane]) * 1664525u)) + even[lane];
    }
    for (uint32_t i = 2; i < WORDS; i++)
        for (int lane = 0; lane < lanes; lane++) {
            uint32_t *words = (uint32_t *)rows[lane];
            words[i] = x[lane] = (words[i] ^ (xor_high_bits(x[lane]) * 1566083941u)) - i;
        }
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t *words = (uint32_t *)rows[lane];
        words[1] = (words[1] ^ (xor_high_bits(x[lane]) * 1566083941u)) - 1;
        words[0] = 0x80000000u;
    }
}

/* Point each lane to the row of its sample, and lanes without a sample to `spare`, which nobody reads. Returns the
 * number of lanes to compute: a single sample is computed alone, which is faster than four. */
static int point_lanes_to_rows(int64_t samples_left, uint8_t *first_row, int64_t row_stride_bytes, uint8_t *spare,
                               uint8_t **rows) {
    for (int lane = 0; lane < LANES; lane++)
        rows[lane] = lane < samples_left ? first_row + row_stride_bytes * lane : spare;
    return samples_left > 1 ? LANES : 1;
}

/* rows: the first sample's words; those of the next sample lie `row_stride_bytes` bytes further. */
EXPORT void samerun_mt19937_init_genrand(int64_t count, const uint32_t *seeds, uint8_t *rows, int64_t row_stride_bytes,
                                         int32_t as_64_bits) {
    uint64_t spare[WORDS];
    for (int64_t at = 0; at < count; at += LANES) {
        uint8_t *lane_rows[LANES];
        uint32_t lane_seeds[LANES] = {0};
        int lanes = point_lanes_to_rows(count - at, rows + at * row_stride_bytes, row_stride_bytes, (uint8_t *)spare,
                                        lane_rows);
        for (int lane = 0; lane < LANES && at + lane < count; lane++) lane_seeds[lane] = seeds[at + lane];
        if (lanes == 1 && as_64_bits) init_genrand_lanes(1, 1, lane_seeds, lane_rows);
        else if (lanes == 1) init_genrand_lanes(1, 0, lane_seeds, lane_rows);
        else if (as_64_bits) init_genrand_lanes(LANES, 1, lane_seeds, lane_rows);
        else init_genrand_lanes(LANES, 0, lane_seeds, lane_rows);
    }
}

EXPORT void samerun_mt19937_init_by_array(int64_t count, const uint64_t *seeds, uint8_t *rows,
                                          int64_t row_stride_bytes) {
    static uint32_t base[WORDS]; /* the caller holds the interpreter's lock */
    uint32_t spare[WORDS];
    if (!base[0]) {
        uint32_t seed = 19650218u;
        uint8_t *row = (uint8_t *)base;
        init_genrand_lanes(1, 0, &seed, &row);
    }
    for (int64_t at = 0; at < count; at += LANES) {
        uint8_t *lane_rows[LANES];
        uint64_t lane_seeds[LANES] = {0};
        int lanes = point_lanes_to_rows(count - at, rows + at * row_stride_bytes, row_stride_bytes, (uint8_t *)spare,
                                        lane_rows);
        for (int lane = 0; lane < LANES && at + lane < count; lane++) lane_seeds[lane] = seeds[at + lane];
        if (lanes == 1) init_by_array_lanes(1, base, lane_seeds, lane_rows);
        else init_by_array_lanes(LANES, base, lane_seeds, lane_rows);
    }
}
