/* Random numbers: the entries for Python. */
#include "kernels.h"
#include "thread_pool.h"
#include "portable.h"

enum { UNIT = 256 }; /* values; pieces of work begin at multiples of it */

typedef struct {
    int normal;
    uint64_t seed, draw_number;
    float *out;
    int64_t n;
} job_t;

static void random_floats_range(void *random_job, int64_t unit_begin, int64_t unit_end) {
    const job_t *job = random_job;
    const kernels_t *kernels = samerun_current_kernels();
    const int64_t first = unit_begin * UNIT, last = unit_end * UNIT < job->n ? unit_end * UNIT : job->n;
    (job->normal ? kernels->normal : kernels->uniform)(job->seed, job->draw_number, first, job->out + first,
                                                       last - first);
}

/* n uniform numbers of [0, 1), or normal ones, of draw number `draw_number` in the stream of `seed`. */
void samerun_random_floats(int is_normal, uint64_t seed, uint64_t draw_number, float *out, int64_t n) {
    job_t job = {is_normal, seed, draw_number, out, n};
    samerun_parallel_for((n + UNIT - 1) / UNIT, 16, random_floats_range, &job);
}

/* The 64-bit word of an element: two words of block element / 2, the low one first; `attempt` in the block's high
 * byte. */
static uint64_t random_word64(uint64_t seed, uint64_t draw_number, uint64_t element, uint64_t attempt) {
    uint32_t words[4];
    philox4x32_10(seed, draw_number, element / 2 | attempt << 56, words);
    return words[element % 2 * 2] | (uint64_t)words[element % 2 * 2 + 1] << 32;
}

typedef struct {
    uint64_t seed, draw_number, range;
    int64_t low, *out;
} word_job_t;

/* Multiply and take the high half (Lemire 2019); the few words that would make it uneven are drawn again. */
static void randint_range(void *word_job, int64_t element_begin, int64_t element_end) {
    const word_job_t *job = word_job;
    const uint64_t uneven = -job->range % job->range;
    for (int64_t i = element_begin; i < element_end; i++) {
        unsigned __int128 product;
        uint64_t attempt = 0;
        do {
            product = (unsigned __int128)random_word64(job->seed, job->draw_number, (uint64_t)i, attempt) * job->range;
            attempt = (attempt + 1) & 0xFF;
        } while ((uint64_t)product < uneven);
        job->out[i] = (int64_t)((uint64_t)job->low + (uint64_t)(product >> 64));
    }
}

/* n whole numbers of low .. low + range - 1; range > 0. */
void samerun_randint(uint64_t seed, uint64_t draw_number, int64_t low, uint64_t range, int64_t *out, int64_t n) {
    word_job_t job = {seed, draw_number, range, low, out};
    samerun_parallel_for(n, 1024, randint_range, &job);
}

static void random_words64_range(void *word_job, int64_t element_begin, int64_t element_end) {
    const word_job_t *job = word_job;
    for (int64_t i = element_begin; i < element_end; i++)
        job->out[i] = (int64_t)random_word64(job->seed, job->draw_number, (uint64_t)i, 0);
}

/* n random 64-bit words: the keys by which a permutation is sorted. */
void samerun_random_words64(uint64_t seed, uint64_t draw_number, uint64_t *out, int64_t n) {
    word_job_t job = {seed, draw_number, 0, 0, (int64_t *)out};
    samerun_parallel_for(n, 1024, random_words64_range, &job);
}

typedef struct {
    uint64_t seed, draw_number;
    const uint64_t *blocks;
    uint64_t *out;
} block_job_t;

static void block_words_range(void *block_job, int64_t block_begin, int64_t block_end) {
    const block_job_t *job = block_job;
    for (int64_t i = block_begin; i < block_end; i++) {
        uint32_t words[4];
        philox4x32_10(job->seed, job->draw_number, job->blocks[i], words);
        for (int half = 0; half < 2; half++)
            job->out[2 * i + half] = words[2 * half] | (uint64_t)words[2 * half + 1] << 32;
    }
}

/* The two 64-bit words of each of n blocks: what a value drawn by rejection takes for one attempt. */
void samerun_random_block_words(uint64_t seed, uint64_t draw_number, const uint64_t *block_indices, uint64_t *out,
                                int64_t n) {
    block_job_t job = {seed, draw_number, block_indices, out};
    samerun_parallel_for(n, 1024, block_words_range, &job);
}
