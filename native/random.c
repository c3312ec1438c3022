/* Random numbers: the entries for Python. */
#include "kernels.h"
#include "thread_pool.h"
#include "portable.h"

enum { UNIT = 256 }; /* values; pieces of work begin at multiples of it */

typedef struct {
    int normal;
    uint64_t seed, position;
    float *out;
    int64_t n;
} job_t;

static void random_floats_range(void *args, int64_t begin, int64_t end) {
    const job_t *job = args;
    const kernels_t *kernels = samerun_current_kernels();
    const int64_t first = begin * UNIT, last = end * UNIT < job->n ? end * UNIT : job->n;
    (job->normal ? kernels->normal : kernels->uniform)(job->seed, job->position, first, job->out + first, last - first);
}

/* n uniform numbers of [0, 1), or normal ones, of the draw at `position` in the stream of `seed`. */
void samerun_random_floats(int normal, uint64_t seed, uint64_t position, float *out, int64_t n) {
    job_t job = {normal, seed, position, out, n};
    samerun_parallel_for((n + UNIT - 1) / UNIT, 16, random_floats_range, &job);
}

/* The 64-bit word of value i: two words of block i / 2, the low one first; `attempt` in the block's high byte. */
static uint64_t random_word64(uint64_t seed, uint64_t position, uint64_t i, uint64_t attempt) {
    uint32_t words[4];
    philox(seed, position, i / 2 | attempt << 56, words);
    return words[i % 2 * 2] | (uint64_t)words[i % 2 * 2 + 1] << 32;
}

typedef struct {
    uint64_t seed, position, range;
    int64_t low, *out;
} word_job_t;

/* Multiply and take the high half (Lemire 2019); the few words that would make it uneven are drawn again. */
static void randint_range(void *args, int64_t begin, int64_t end) {
    const word_job_t *job = args;
    const uint64_t uneven = -job->range % job->range;
    for (int64_t i = begin; i < end; i++) {
        unsigned __int128 product;
        uint64_t attempt = 0;
        do {
            product = (unsigned __int128)random_word64(job->seed, job->position, (uint64_t)i, attempt) * job->range;
            attempt = (attempt + 1) & 0xFF;
        } while ((uint64_t)product < uneven);
        job->out[i] = (int64_t)((uint64_t)job->low + (uint64_t)(product >> 64));
    }
}

/* n whole numbers of low .. low + range - 1; range > 0. */
void samerun_randint(uint64_t seed, uint64_t position, int64_t low, uint64_t range, int64_t *out, int64_t n) {
    word_job_t job = {seed, position, range, low, out};
    samerun_parallel_for(n, 1024, randint_range, &job);
}

static void random_words64_range(void *args, int64_t begin, int64_t end) {
    const word_job_t *job = args;
    for (int64_t i = begin; i < end; i++)
        job->out[i] = (int64_t)random_word64(job->seed, job->position, (uint64_t)i, 0);
}

/* n random 64-bit words: the keys by which a permutation is sorted. */
void samerun_random_words64(uint64_t seed, uint64_t position, uint64_t *out, int64_t n) {
    word_job_t job = {seed, position, 0, 0, (int64_t *)out};
    samerun_parallel_for(n, 1024, random_words64_range, &job);
}

typedef struct {
    uint64_t seed, position;
    const uint64_t *blocks;
    uint64_t *out;
} block_job_t;

static void block_words_range(void *args, int64_t begin, int64_t end) {
    const block_job_t *job = args;
    for (int64_t i = begin; i < end; i++) {
        uint32_t words[4];
        philox(job->seed, job->position, job->blocks[i], words);
        for (int half = 0; half < 2; half++)
            job->out[2 * i + half] = words[2 * half] | (uint64_t)words[2 * half + 1] << 32;
    }
}

/* The two 64-bit words of each of n blocks: what a value drawn by rejection takes for one attempt. */
void samerun_random_block_words(uint64_t seed, uint64_t position, const uint64_t *blocks, uint64_t *out, int64_t n) {
    block_job_t job = {seed, position, blocks, out};
    samerun_parallel_for(n, 1024, block_words_range, &job);
}
