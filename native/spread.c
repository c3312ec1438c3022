/* An image copied into one with its padding, or with zeros between its values; a weight in another order. */
#include <string.h>

#include "convolution.h"
#include "pool.h"
#include "scratch.h"

enum { SLACK = 64, AHEAD = 2048 /* bytes that are asked for before they are copied */ };

typedef struct {
    const char *from;
    char *to;
    size_t real;
    int64_t in[3], size[3], step[3], left[3]; /* value i of a dimension goes to left + i * step, if inside size */
    int64_t apart;
} spread_t;

/* memcpy of few bytes: moves of sizes that the compiler knows, which may overlap, take a fraction of a call's time. */
static inline void copy_few(char *to, const char *from, size_t bytes) {
    if (bytes >= 32) {
        for (size_t i = 0; i < bytes - 32; i += 32) memcpy(to + i, from + i, 32);
        memcpy(to + bytes - 32, from + bytes - 32, 32);
    } else if (bytes >= 8 && bytes <= 16)
        memcpy(to, from, 8), memcpy(to + bytes - 8, from + bytes - 8, 8);
    else
        memcpy(to, from, bytes);
}

static inline void zero_few(char *from, char *to) {
    if (to - from > 32) memset(from, 0, (size_t)(to - from));
    else for (; from < to; from += 4) memset(from, 0, 4);
}

/* Every second value to `to`, the others to `next`: as vectors. */
static void part_line(const float *restrict line, int64_t n, float *restrict to, float *restrict next) {
    for (int64_t i = 0; i < n / 2; i++) to[i] = line[2 * i], next[i] = line[2 * i + 1];
    if (n % 2) to[n / 2] = line[n - 1];
}

/* Zeros from `zeros` to where n bytes of values go; where those end. */
static inline char *zeros_before(char *zeros, char *to, size_t n) {
    zero_few(zeros, to);
    return to + n;
}

/* Values first to last of a line that is taken two apart, with the zeros before and between them; where these end. */
static inline char *spread_in_two(const spread_t *it, char *zeros, char *row, const char *line, int64_t first, int64_t last) {
    const int64_t place = it->left[2] + first, bytes = (last - first + 1) / 2 * 4, fewer = (last - first) / 2 * 4;
    char *to = row + samerun_place(place, it->size[2], 2) * 4, *next = row + samerun_place(place + 1, it->size[2], 2) * 4;
    part_line((const float *)line + first, last - first, (float *)to, (float *)next);
    if (to < next) return zeros_before(zeros_before(zeros, to, (size_t)bytes), next, (size_t)fewer);
    return zeros_before(zeros_before(zeros, next, (size_t)fewer), to, (size_t)bytes);
}

/* Values first to last of a line, one by one. */
static void spread_line(const spread_t *it, char *row, const char *line, int64_t first, int64_t last) {
    const int64_t step = it->step[2];
    for (int64_t turn = 0; turn < it->apart; turn++) { /* each of these values goes one further than the one before, or step */
        const int64_t place = it->left[2] + (first + turn) * step;
        char *to = row + (size_t)samerun_place(place, it->size[2], it->apart) * it->real;
        if (it->real == 4) /* so that it is one move */
            for (int64_t w = first + turn; w < last; w += it->apart, to += 4 * step) memcpy(to, line + 4 * w, 4);
        else
            for (int64_t w = first + turn; w < last; w += it->apart, to += it->real * (size_t)step)
                memcpy(to, line + (size_t)w * it->real, it->real);
    }
}

static void spread_channels(void *job, int64_t from, int64_t to) {
    const spread_t *it = job;
    size_t real = it->real;
    const int64_t x = it->left[2];
    int64_t first = 0, last = it->in[2];
    while (first < last && x + first * it->step[2] < 0) first++;
    while (first < last && x + (last - 1) * it->step[2] >= it->size[2]) last--;
    for (int64_t channel = from; channel < to; channel++) {
        char *image = it->to + (size_t)(channel * samerun_volume(it->size)) * real;
        const char *source = it->from + (size_t)(channel * samerun_volume(it->in)) * real;
        const int side_by_side = it->step[2] == 1 && it->apart == 1;
        const int in_two = it->step[2] == 1 && it->apart == 2 && real == 4 && first < last;
        char *const end = image + (size_t)samerun_volume(it->size) * real, *zeros = image;
        if (!side_by_side && !in_two) memset(image, 0, (size_t)samerun_volume(it->size) * real), zeros = end;
        for (int64_t d = 0; d < it->in[0]; d++) {
            int64_t z = it->left[0] + d * it->step[0];
            if (z < 0 || z >= it->size[0]) continue;
            for (int64_t h = 0; h < it->in[1]; h++) {
                const int64_t y = it->left[1] + h * it->step[1];
                if (y < 0 || y >= it->size[1]) continue;
                const char *line = source + (size_t)((d * it->in[1] + h) * it->in[2]) * real;
                char *row = image + (size_t)((z * it->size[1] + y) * it->size[2]) * real;
                if (side_by_side || in_two)
                    for (size_t i = 0; i < (size_t)it->in[2] * real; i += 64) __builtin_prefetch(line + AHEAD + i);
                if (side_by_side) {
                    const size_t bytes = (size_t)(last - first) * real;
                    char *to = row + (size_t)(x + first) * real;
                    zeros = zeros_before(zeros, to, bytes);
                    copy_few(to, line + (size_t)first * real, bytes);
                } else if (in_two) {
                    zeros = spread_in_two(it, zeros, row, line, first, last);
                } else
                    spread_line(it, row, line, first, last);
            }
        }
        zero_few(zeros, end);
    }
}

char *samerun_spread(const void *from, int64_t channels, const int64_t *in, const int64_t *size, const int64_t *step,
                     const int64_t *left, int64_t apart, size_t real, int *own) {
    *own = apart != 1 || memcmp(in, size, 3 * sizeof *in) != 0;
    for (int i = 0; i < 3; i++) *own |= left[i] != 0 || (step[i] != 1 && in[i] > 1);
    if (!*own) return NULL;
    char *to = samerun_scratch(SCRATCH_IMAGE, (size_t)(channels * samerun_volume(size)) * real + SLACK);
    if (to == NULL) return NULL;
    spread_t job = {from, to, real, {0}, {0}, {0}, {0}, apart};
    memcpy(job.in, in, sizeof job.in);
    memcpy(job.size, size, sizeof job.size);
    memcpy(job.step, step, sizeof job.step);
    memcpy(job.left, left, sizeof job.left);
    samerun_parallel(channels, 1 + 16384 / (1 + samerun_volume(size)), spread_channels, &job);
    return to;
}

typedef struct {
    const char *from;
    char *to;
    int64_t inputs, outputs; /* of a group */
    size_t bytes;            /* of the taps */
} reorder_t;

/* Some inputs of all outputs at a time: lines on both sides are met again soon. */
static void reorder(void *job, int64_t from, int64_t to) {
    const reorder_t *it = job;
    enum { INPUTS = 16 };
    for (int64_t start = from; start < to; start += INPUTS) {
        const int64_t stop = start + INPUTS < to ? start + INPUTS : to;
        for (int64_t o = 0; o < it->outputs; o++)
            for (int64_t at = start, i = start % it->inputs, group = start / it->inputs; at < stop; at++, i++) {
                if (i == it->inputs) i = 0, group++;
                copy_few(it->to + (size_t)(at * it->outputs + o) * it->bytes,
                         it->from + (size_t)((group * it->outputs + o) * it->inputs + i) * it->bytes, it->bytes);
            }
    }
}

void *samerun_weight_by_inputs(const void *weight, const samerun_shape *s, size_t real) {
    const size_t bytes = (size_t)samerun_volume(s->taps) * real;
    char *to = samerun_scratch(SCRATCH_WEIGHT, (size_t)(s->outputs * (s->inputs / s->groups)) * bytes);
    reorder_t job = {weight, to, s->inputs / s->groups, s->outputs / s->groups, bytes};
    if (to != NULL) samerun_parallel(s->inputs, 1 + 65536 / (1 + job.outputs * (int64_t)bytes), reorder, &job);
    return to;
}
