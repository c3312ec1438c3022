/* XXH3-128 of large buffers in pieces, on an OpenMP team of the caller.
 *
 * Written from the public specification of XXH3 (xxHash, doc/xxhash_spec.md). Tests compare every path with the
 * `xxhash` package, which does the same work where this file could not be built. Only inputs above 240 bytes are
 * handled: the algorithm for shorter ones is different, and they never come here.
 *
 * The pieces are independent, so the order in which they are computed does not matter.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "x86_features.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_X86 1
#endif

#define P32_1 0x9E3779B1U
#define P32_2 0x85EBCA77U
#define P32_3 0xC2B2AE3DU
#define P64_1 0x9E3779B185EBCA87ULL
#define P64_2 0xC2B2AE3D27D4EB4FULL
#define P64_3 0x165667B19E3779F9ULL
#define P64_4 0x85EBCA77C2B2AE63ULL
#define P64_5 0x27D4EB2F165667C5ULL

enum { SECRET = 192, STRIPE = 64, STRIPES = (SECRET - STRIPE) / 8, BLOCK = STRIPE * STRIPES };

static const uint8_t default_secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static uint64_t read_u64(const uint8_t *src) {
    uint64_t value;
    memcpy(&value, src,
           8); /* every machine this is built for is little-endian; samerun_digest_init_if_little_endian checks */
    return value;
}

static void write_u64(uint8_t *dst, uint64_t value) { memcpy(dst, &value, 8); }

static void derive_secret(uint8_t *secret, uint64_t seed) {
    for (int at = 0; at < SECRET; at += 16) {
        write_u64(secret + at, read_u64(default_secret + at) + seed);
        write_u64(secret + at + 8, read_u64(default_secret + at + 8) - seed);
    }
}

static uint64_t mul128_fold64(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t merge_accumulators(const uint64_t *acc, const uint8_t *secret, uint64_t start) {
    for (int i = 0; i < 4; i++)
        start += mul128_fold64(acc[2 * i] ^ read_u64(secret + 16 * i), acc[2 * i + 1] ^ read_u64(secret + 16 * i + 8));
    start ^= start >> 37;
    start *= 0x165667919E3779F9ULL;
    return start ^ (start >> 32);
}

/* Mix data into the eight lanes: whole blocks, each followed by a scramble, then the remaining stripes, then the last
 * stripe, which may overlap. The secret advances by 8 bytes for each stripe. */
typedef void accumulate_input_t(uint64_t *acc, const uint8_t *data, size_t size, const uint8_t *secret);

static void accumulate_stripe(uint64_t *acc, const uint8_t *data, const uint8_t *secret) {
    for (int i = 0; i < 8; i++) {
        uint64_t value = read_u64(data + 8 * i), key = value ^ read_u64(secret + 8 * i);
        acc[i ^ 1] += value;
        acc[i] += (key & 0xFFFFFFFFU) * (key >> 32);
    }
}

static void accumulate_input_scalar(uint64_t *acc, const uint8_t *data, size_t size, const uint8_t *secret) {
    const uint8_t *end = data + size;
    for (size_t block = (size - 1) / BLOCK; block; block--) {
        for (int n = 0; n < STRIPES; n++, data += STRIPE) accumulate_stripe(acc, data, secret + 8 * n);
        for (int i = 0; i < 8; i++)
            acc[i] = ((acc[i] ^ (acc[i] >> 47)) ^ read_u64(secret + SECRET - STRIPE + 8 * i)) * P32_1;
    }
    for (int n = 0; n < (end - 1 - data) / STRIPE; n++) accumulate_stripe(acc, data + STRIPE * n, secret + 8 * n);
    accumulate_stripe(acc, end - STRIPE, secret + SECRET - STRIPE - 7);
}

#ifdef HAVE_X86
#define LOAD(at) _mm256_loadu_si256((const __m256i *)(at))

__attribute__((target("avx2"), always_inline)) static inline __m256i accumulate_half_stripe(__m256i acc,
                                                                                            const uint8_t *data,
                                                                                            const uint8_t *secret) {
    __m256i value = LOAD(data), key = _mm256_xor_si256(value, LOAD(secret));
    __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
    return _mm256_add_epi64(acc, _mm256_add_epi64(product, _mm256_shuffle_epi32(value, 0x4E)));
}

__attribute__((target("avx2"), always_inline)) static inline __m256i scramble_half(__m256i acc, const uint8_t *secret) {
    const __m256i prime = _mm256_set1_epi64x(P32_1);
    acc = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)), LOAD(secret));
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(acc, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(acc, prime), _mm256_slli_epi64(high, 32));
}

__attribute__((target("avx2"))) static void accumulate_input_avx2(uint64_t *acc, const uint8_t *data, size_t size,
                                                                  const uint8_t *secret) {
    const uint8_t *end = data + size;
    __m256i a = LOAD(acc), b = LOAD(acc + 4);
    for (size_t block = (size - 1) / BLOCK; block; block--) {
#pragma GCC unroll 1 /* unrolled, gcc keeps the secret on the stack and is a third slower */
        for (int n = 0; n < STRIPES; n++, data += STRIPE) {
            _mm_prefetch((const char *)data + 6 * STRIPE, _MM_HINT_T0);
            a = accumulate_half_stripe(a, data, secret + 8 * n);
            b = accumulate_half_stripe(b, data + 32, secret + 8 * n + 32);
        }
        a = scramble_half(a, secret + SECRET - STRIPE);
        b = scramble_half(b, secret + SECRET - STRIPE + 32);
    }
    for (int n = 0; n < (end - 1 - data) / STRIPE; n++) {
        a = accumulate_half_stripe(a, data + STRIPE * n, secret + 8 * n);
        b = accumulate_half_stripe(b, data + STRIPE * n + 32, secret + 8 * n + 32);
    }
    a = accumulate_half_stripe(a, end - STRIPE, secret + SECRET - STRIPE - 7);
    b = accumulate_half_stripe(b, end - STRIPE + 32, secret + SECRET - STRIPE - 7 + 32);
    _mm256_storeu_si256((__m256i *)acc, a);
    _mm256_storeu_si256((__m256i *)(acc + 4), b);
}
#endif

static accumulate_input_t *accumulate_input = accumulate_input_scalar;

static void xxh3_128_of_piece_above_240_bytes(const uint8_t *data, size_t size, const uint8_t *secret, uint8_t *out) {
    uint64_t acc[8] = {P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1};
    accumulate_input(acc, data, size, secret);
    uint64_t low = merge_accumulators(acc, secret + 11, (uint64_t)size * P64_1);
    uint64_t high = merge_accumulators(acc, secret + SECRET - STRIPE - 11, ~((uint64_t)size * P64_2));
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(high >> (56 - 8 * i));
        out[8 + i] = (uint8_t)(low >> (56 - 8 * i));
    }
}

typedef struct {
    const uint8_t *data, *secret;
    size_t size, piece, pieces;
    uint8_t *out;
    uint32_t threads;
    uint32_t turn;
} job_t;

/* omp_get_thread_num of the same library as the team. */
static int (*omp_get_thread_num_of_team)(void);

static void digest_pieces_of_thread(job_t *job, uint32_t thread_number) {
    size_t begin = job->pieces * thread_number / job->threads, end = job->pieces * (thread_number + 1) / job->threads;
    for (size_t n = begin; n < end; n++) {
        size_t size = n + 1 < job->pieces ? job->piece : job->size - n * job->piece;
        xxh3_128_of_piece_above_240_bytes(job->data + n * job->piece, size, job->secret, job->out + 16 * n);
    }
}

/* The work of each thread of a team. torch's operators give thread n the n-th part of their result, and the core that
 * wrote a part reads it fastest. So a thread takes the share of its number, not the next share that is free. */
static void digest_share_of_team_member(void *digest_job) {
    job_t *job = digest_job;
    uint32_t turn = __atomic_fetch_add(&job->turn, 1, __ATOMIC_RELAXED);
    digest_pieces_of_thread(job, omp_get_thread_num_of_team ? (uint32_t)omp_get_thread_num_of_team() : turn);
}

typedef void gomp_parallel_t(void (*work)(void *), void *job, unsigned threads, unsigned flags);

/* 1 if this machine is little-endian, as the code above expects. Selects the instruction set; call it once. */
int samerun_digest_init_if_little_endian(void) {
    const uint16_t one = 1;
#ifdef HAVE_X86
    if (x86_has_avx2()) accumulate_input = accumulate_input_avx2;
#endif
    return *(const uint8_t *)&one;
}

/* Set the function that returns a thread's number in the team. */
void samerun_digest_set_omp_get_thread_num(int (*omp_get_thread_num)(void)) {
    omp_get_thread_num_of_team = omp_get_thread_num;
}

/* The 16-byte digests of `size / piece_bytes` pieces; the last piece includes the remainder. piece_bytes > 240.
 * `gomp_parallel`: GOMP_parallel of the OpenMP library that the program computes with, or NULL for one thread. */
void samerun_digest_each_piece(const uint8_t *data, size_t size, size_t min_piece_bytes, uint64_t seed, uint8_t *out,
                           gomp_parallel_t *gomp_parallel, uint32_t threads) {
    uint8_t secret[SECRET];
    derive_secret(secret, seed);
    job_t job = {data, secret, size, min_piece_bytes, size / min_piece_bytes, out, 1, 0};
    if (gomp_parallel && threads > 1 && job.pieces > 1) {
        job.threads = threads;
        gomp_parallel(digest_share_of_team_member, &job, threads, 0);
        /* A team may be smaller than requested: compute the shares that it left. */
        for (uint32_t thread = job.turn; thread < threads; thread++) digest_pieces_of_thread(&job, thread);
    } else {
        digest_pieces_of_thread(&job, 0);
    }
}
