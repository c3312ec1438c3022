/* Random numbers from Philox words: random.c and random_kernels.inc say the same for the CPU. A thread makes the four
 * values of a block, so launch shapes decide nothing. */
#include "common.h"
#include "../functions/float_functions.h"

KERNEL random_uniform(uint64_t seed, uint64_t draw_number, float *out, int64_t n) {
    EACH(block, (n + 3) / 4) {
        uint32_t words[4];
        philox4x32_10(seed, draw_number, (uint64_t)block, words);
        for (int i = 0; i < 4 && 4 * block + i < n; i++) out[4 * block + i] = (float)(words[i] >> 8) * 0x1p-24f;
    }
}

/* Values 2i and 2i+1 of words a and b: u = ((a >> 8) + 1) 2^-24, v = (b >> 8) 2^-24,
 * sqrt(-2 log u) times the cosine and the sine of 2 pi v. */
KERNEL random_normal(uint64_t seed, uint64_t draw_number, float *out, int64_t n) {
    EACH(block, (n + 3) / 4) {
        uint32_t words[4];
        philox4x32_10(seed, draw_number, (uint64_t)block, words);
        for (int i = 0; i < 4 && 4 * block + i < n; i += 2) {
            const float u = (float)((words[i] >> 8) + 1) * 0x1p-24f;
            const float angle = 6.2831853071795865f * ((float)(words[i + 1] >> 8) * 0x1p-24f);
            const float r = __builtin_sqrtf(-2 * log_float(u));
            out[4 * block + i] = r * cos_float(angle);
            if (4 * block + i + 1 < n) out[4 * block + i + 1] = r * sin_float(angle);
        }
    }
}

/* The 64-bit word of value i: two words of block i / 2, the low one first; `attempt` in the block's high byte. */
DEVICE uint64_t random_word64(uint64_t seed, uint64_t draw_number, uint64_t element, uint64_t attempt) {
    uint32_t words[4];
    philox4x32_10(seed, draw_number, element / 2 | attempt << 56, words);
    return element % 2 ? words[2] | (uint64_t)words[3] << 32 : words[0] | (uint64_t)words[1] << 32;
}

KERNEL randint(uint64_t seed, uint64_t draw_number, int64_t low, uint64_t range, int64_t *out, int64_t n) {
    const uint64_t uneven = (0 - range) % range;
    EACH(i, n) {
        unsigned __int128 product;
        uint64_t attempt = 0;
        do {
            product = (unsigned __int128)random_word64(seed, draw_number, (uint64_t)i, attempt) * range;
            attempt = (attempt + 1) & 0xFF;
        } while ((uint64_t)product < uneven);
        out[i] = (int64_t)((uint64_t)low + (uint64_t)(product >> 64));
    }
}

KERNEL random_words64(uint64_t seed, uint64_t draw_number, uint64_t *out, int64_t n) {
    EACH(i, n) out[i] = random_word64(seed, draw_number, (uint64_t)i, 0);
}

/* The two 64-bit words of each of n blocks, the low half of each first. */
KERNEL random_block_words(uint64_t seed, uint64_t draw_number, const uint64_t *blocks, uint64_t *out, int64_t n) {
    EACH(i, n) {
        uint32_t words[4];
        philox4x32_10(seed, draw_number, blocks[i], words);
        for (int half = 0; half < 2; half++) out[2 * i + half] = words[2 * half] | (uint64_t)words[2 * half + 1] << 32;
    }
}
