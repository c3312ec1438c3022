/* Random numbers: the entries for Python. */
#include "kernels.h"
#include "pool.h"
#include "portable.h"

enum { UNIT = 256 }; /* values; pieces of work begin at multiples of it */

typedef struct {
    int normal;
    uint64_t seed, position;
    float *out;
    int64_t n;
} job_t;

static void some(void *given, int64_t from, int64_t to) {
    const job_t *job = given;
    const kernels_t *kernels = samerun_kernels();
    const int64_t first = from * UNIT, end = to * UNIT < job->n ? to * UNIT : job->n;
    (job->normal ? kernels->normal : kernels->uniform)(job->seed, job->position, first, job->out + first, end - first);
}

/* n uniform numbers of [0, 1), or normal ones, of the draw at `position` in the stream of `seed`. */
void samerun_random(int normal, uint64_t seed, uint64_t position, float *out, int64_t n) {
    job_t job = {normal, seed, position, out, n};
    samerun_parallel((n + UNIT - 1) / UNIT, 16, some, &job);
}

/* The 64-bit word of value i: two words of block i / 2, the low one first; `attempt` in the block's high byte. */
static uint64_t word64(uint64_t seed, uint64_t position, uint64_t i, uint64_t attempt) {
    uint32_t words[4];
    philox(seed, position, i / 2 | attempt << 56, words);
    return words[i % 2 * 2] | (uint64_t)words[i % 2 * 2 + 1] << 32;
}

typedef struct {
    uint64_t seed, position, range;
    int64_t low, *out;
} whole_job_t;

/* Multiply and take the high half (Lemire 2019); the few words that would make it uneven are drawn again. */
static void some_whole(void *given, int64_t from, int64_t to) {
    const whole_job_t *job = given;
    const uint64_t uneven = -job->range % job->range;
    for (int64_t i = from; i < to; i++) {
        unsigned __int128 product;
        uint64_t attempt = 0;
        do {
            product = (unsigned __int128)word64(job->seed, job->position, (uint64_t)i, attempt) * job->range;
            attempt = (attempt + 1) & 0xFF;
        } while ((uint64_t)product < uneven);
        job->out[i] = (int64_t)((uint64_t)job->low + (uint64_t)(product >> 64));
    }
}

/* n whole numbers of low .. low + range - 1; range > 0. */
void samerun_randint(uint64_t seed, uint64_t position, int64_t low, uint64_t range, int64_t *out, int64_t n) {
    whole_job_t job = {seed, position, range, low, out};
    samerun_parallel(n, 1024, some_whole, &job);
}

static void some_words(void *given, int64_t from, int64_t to) {
    const whole_job_t *job = given;
    for (int64_t i = from; i < to; i++)
        job->out[i] = (int64_t)word64(job->seed, job->position, (uint64_t)i, 0);
}

/* n random 64-bit words: the keys by which a permutation is sorted. */
void samerun_words64(uint64_t seed, uint64_t position, uint64_t *out, int64_t n) {
    whole_job_t job = {seed, position, 0, 0, (int64_t *)out};
    samerun_parallel(n, 1024, some_words, &job);
}

typedef struct {
    uint64_t seed, position;
    const uint64_t *blocks;
    uint64_t *out;
} block_job_t;

static void some_blocks(void *given, int64_t from, int64_t to) {
    const block_job_t *job = given;
    for (int64_t i = from; i < to; i++) {
        uint32_t words[4];
        philox(job->seed, job->position, job->blocks[i], words);
        for (int half = 0; half < 2; half++)
            job->out[2 * i + half] = words[2 * half] | (uint64_t)words[2 * half + 1] << 32;
    }
}

/* The two 64-bit words of each of n blocks: what a value drawn by rejection takes for one attempt. */
void samerun_block_words(uint64_t seed, uint64_t position, const uint64_t *blocks, uint64_t *out, int64_t n) {
    block_job_t job = {seed, position, blocks, out};
    samerun_parallel(n, 1024, some_blocks, &job);
}
