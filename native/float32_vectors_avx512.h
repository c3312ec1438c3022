/* The vectors of float32_fast_path.inc: sixteen floats. A mask has a bit for each. */
#include <immintrin.h>

enum { WIDE = 16 };
typedef __m512 vector_t;
typedef __mmask16 mask_t;
typedef __m512i words_t;
typedef uint16_t marks_t; /* a bit for each value of a vector */

#define LOAD_FLOATS(from) _mm512_loadu_ps(from)
#define STORE_FLOATS(to, x) _mm512_storeu_ps(to, x)
#define STORE_WORDS(to, x) _mm512_storeu_si512(to, x)
#define EACH(value) _mm512_set1_ps(value)
#define EACH_BITS(value) _mm512_set1_epi32((int)(value))
#define FUSED(a, b, c) _mm512_fmadd_ps(a, b, c)
#define BITS_OF(x) _mm512_castps_si512(x)
#define OF_BITS(x) _mm512_castsi512_ps(x)
#define SIZE_OF(x) _mm512_andnot_ps(EACH(-0.0f), x)
#define SIGN_OF(x) _mm512_and_ps(EACH(-0.0f), x)
#define SIGNED_LIKE(size, sign) _mm512_or_ps(size, sign)
#define TURNED_BY(x, sign) _mm512_xor_ps(x, sign)
#define LESSER(a, b) _mm512_min_ps(a, b) /* b where either is none */
#define GREATER(a, b) _mm512_max_ps(a, b)
#define WORD_SUM(a, b) _mm512_add_epi32(a, b)
#define WORD_DIFFERENCE(a, b) _mm512_sub_epi32(a, b)
#define WORD_AND(a, b) _mm512_and_si512(a, b)
#define WORD_LEFT(a, by) _mm512_slli_epi32(a, by)
#define WORD_RIGHT(a, by) _mm512_srai_epi32(a, by)
#define FLOATS_OF(words) _mm512_cvtepi32_ps(words)
/* Number `at` mod 8 of eight */
#define EIGHT_FLOATS(table, at) _mm512_permutexvar_ps(at, _mm512_broadcast_f32x8(_mm256_load_ps(table)))
#define EIGHT_WORDS(table, at) \
    _mm512_permutexvar_epi32(at, _mm512_broadcast_i32x8(_mm256_load_si256((const __m256i *)(table))))

#define EITHER(a, b) ((mask_t)((a) | (b)))
#define ALL(mask) _kortestc_mask16_u8(mask, mask)
#define ZERO_WHERE(mask, x) _mm512_maskz_mov_ps((mask_t) ~(mask), x)
#define EQUAL(a, b) _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#define DIFFERENT(a, b) _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) /* also where either is none */
#define EQUAL_WHERE(mask, a, b) _mm512_mask_cmp_ps_mask(mask, a, b, _CMP_EQ_OQ)
#define BELOW(x, bound) _mm512_cmp_ps_mask(x, EACH(bound), _CMP_LT_OQ)
#define AT_LEAST(x, bound) _mm512_cmp_ps_mask(x, EACH(bound), _CMP_GE_OQ)
#define WORD_ABOVE(a, b) _mm512_cmpgt_epi32_mask(a, b)
#define CHOSEN(mask, x, other) _mm512_mask_blend_ps(mask, other, x)
#define MARKS_OF(mask) ((marks_t)(mask))

/* Rows i, i + 4, i + 8 and i + 12 one behind the other. */
#define ROW_OF(rows, at, i) _mm_load_ps((rows) + (at)[i])
#define TWO_ROWS(rows, at, i) \
    _mm256_insertf128_ps(_mm256_castps128_ps256(ROW_OF(rows, at, i)), ROW_OF(rows, at, (i) + 4), 1)
#define ROWS_OF(rows, at, i) \
    _mm512_insertf32x8(_mm512_castps256_ps512(TWO_ROWS(rows, at, i)), TWO_ROWS(rows, at, (i) + 8), 1)
/* Number `at` mod 32 of 32 */
#define PIECE(table, at) _mm512_permutex2var_ps(_mm512_load_ps(table), at, _mm512_load_ps((table) + 16))
#define PIECE_WORDS(table, at) _mm512_permutex2var_epi32(_mm512_load_si512(table), at, _mm512_load_si512((table) + 16))
#define LESSER_SIZE(a, b) _mm512_range_ps(a, b, 0xA) /* without sign; b where a is none */
#define DIFFERENCE_WHERE(mask, a, b, other) _mm512_mask_sub_ps(other, mask, a, b)
/* x, its sign changed where that of `other` is plus: x ^ (~other & the bit of a sign) */
#define TURNED_UNLESS(x, other) \
    OF_BITS(_mm512_ternarylogic_epi32(BITS_OF(x), BITS_OF(other), EACH_BITS(0x80000000U), 0xD2))
#define LOW_PAIRS(a, b) _mm512_unpacklo_ps(a, b)
#define HIGH_PAIRS(a, b) _mm512_unpackhi_ps(a, b)

/* Those of 16 floats that are marked, one behind the other in `dst`, which has room for all; how many. And back. Memory of
   floats that are not marked is neither read nor written: it may lie behind the end, or belong to another thread. */
static inline int compress_marked_of_16_floats(float *dst, const float *src, unsigned mask) {
    STORE_FLOATS(dst, _mm512_maskz_compress_ps((mask_t)mask, _mm512_maskz_loadu_ps((mask_t)mask, src)));
    return __builtin_popcount(mask);
}
static inline int expand_marked_floats(float *dst, const float *src, unsigned mask) {
    _mm512_mask_storeu_ps(dst, (mask_t)mask, _mm512_maskz_expand_ps((mask_t)mask, LOAD_FLOATS(src)));
    return __builtin_popcount(mask);
}

/* Which of 32 groups of 16 marks have some. */
static inline uint32_t mask_of_32_groups_with_marks(const void *marks) {
    const words_t all = _mm512_loadu_si512(marks);
    return _mm512_test_epi16_mask(all, all);
}
