/* The vectors of float32_fast_path.inc: eight floats. A mask is a vector of whole words. */
#include <immintrin.h>

enum { WIDE = 8 };
typedef __m256 vector_t, mask_t;
typedef __m256i words_t;
typedef uint8_t marks_t; /* a bit for each value of a vector */

#define LOAD_FLOATS(from) _mm256_loadu_ps(from)
#define STORE_FLOATS(to, x) _mm256_storeu_ps(to, x)
#define STORE_WORDS(to, x) _mm256_storeu_si256((__m256i *)(to), x)
#define EACH(value) _mm256_set1_ps(value)
#define EACH_BITS(value) _mm256_set1_epi32((int)(value))
#define FUSED(a, b, c) _mm256_fmadd_ps(a, b, c)
#define BITS_OF(x) _mm256_castps_si256(x)
#define OF_BITS(x) _mm256_castsi256_ps(x)
#define SIZE_OF(x) _mm256_andnot_ps(EACH(-0.0f), x)
#define SIGN_OF(x) _mm256_and_ps(EACH(-0.0f), x)
#define SIGNED_LIKE(size, sign) _mm256_or_ps(size, sign)
#define TURNED_BY(x, sign) _mm256_xor_ps(x, sign)
#define LESSER(a, b) _mm256_min_ps(a, b) /* b where either is none */
#define GREATER(a, b) _mm256_max_ps(a, b)
#define WORD_SUM(a, b) _mm256_add_epi32(a, b)
#define WORD_DIFFERENCE(a, b) _mm256_sub_epi32(a, b)
#define WORD_AND(a, b) _mm256_and_si256(a, b)
#define WORD_LEFT(a, by) _mm256_slli_epi32(a, by)
#define WORD_RIGHT(a, by) _mm256_srai_epi32(a, by)
#define FLOATS_OF(words) _mm256_cvtepi32_ps(words)
/* Number `at` mod 8 of eight */
#define EIGHT_FLOATS(table, at) _mm256_permutevar8x32_ps(_mm256_load_ps(table), at)
#define EIGHT_WORDS(table, at) _mm256_permutevar8x32_epi32(_mm256_load_si256((const __m256i *)(table)), at)

#define EITHER(a, b) _mm256_or_ps(a, b)
#define ALL(mask) (_mm256_movemask_ps(mask) == 0xFF)
#define ZERO_WHERE(mask, x) _mm256_andnot_ps(mask, x)
#define EQUAL(a, b) _mm256_cmp_ps(a, b, _CMP_EQ_OQ)
#define EQUAL_WHERE(mask, a, b) _mm256_and_ps(mask, EQUAL(a, b))
#define BELOW(x, bound) _mm256_cmp_ps(x, EACH(bound), _CMP_LT_OQ)
#define AT_LEAST(x, bound) _mm256_cmp_ps(x, EACH(bound), _CMP_GE_OQ)
#define WORD_ABOVE(a, b) OF_BITS(_mm256_cmpgt_epi32(a, b))
#define CHOSEN(mask, x, other) _mm256_blendv_ps(other, x, mask)
#define MARKS_OF(mask) ((marks_t)_mm256_movemask_ps(mask))

/* Row i in the low half, row i + 4 in the high one. */
#define ROW_OF(rows, at, i) _mm_load_ps((rows) + (at)[i])
#define ROWS_OF(rows, at, i) \
    _mm256_insertf128_ps(_mm256_castps128_ps256(ROW_OF(rows, at, i)), ROW_OF(rows, at, (i) + 4), 1)
#define LOW_PAIRS(a, b) _mm256_unpacklo_ps(a, b)
#define HIGH_PAIRS(a, b) _mm256_unpackhi_ps(a, b)

/* Those of 16 floats that are marked, one behind the other in `dst`; how many. And back. */
static inline int compress_marked_of_16_floats(float *dst, const float *src, unsigned mask) {
    int count = 0;
    for (; mask; mask &= mask - 1) dst[count++] = src[__builtin_ctz(mask)];
    return count;
}
static inline int expand_marked_floats(float *dst, const float *src, unsigned mask) {
    int count = 0;
    for (; mask; mask &= mask - 1) dst[__builtin_ctz(mask)] = src[count++];
    return count;
}

/* Which of 32 groups of 16 marks have some. */
static inline uint32_t mask_of_32_groups_with_marks(const void *marks) {
    const __m256i *at = marks, none = _mm256_setzero_si256();
    const __m256i low = _mm256_cmpeq_epi16(_mm256_loadu_si256(at), none);
    const __m256i high = _mm256_cmpeq_epi16(_mm256_loadu_si256(at + 1), none);
    /* packed, halves of both lie in turns */
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8);
    return ~(uint32_t)_mm256_movemask_epi8(both);
}
