/* An image copied into one with its padding, or with zeros between its values; a weight in another order. */
#include <string.h>

#include "spread.h"
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
    } else if (bytes >= 8 && bytes <= 16) memcpy(to, from, 8), memcpy(to + bytes - 8, from + bytes - 8, 8);
    else memcpy(to, from, bytes);
}

static inline void zero_few(char *from, char *to) {
    if (to - from > 32) memset(from, 0, (size_t)(to - from));
    else
        for (; from < to; from += 4) memset(from, 0, 4);
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
static inline char *spread_in_two(const spread_t *job, char *zeros, char *row, const char *line, int64_t first,
                                  int64_t last) {
    const int64_t place = job->left[2] + first, bytes = (last - first + 1) / 2 * 4, fewer = (last - first) / 2 * 4;
    char *to = row + samerun_place(place, job->size[2], 2) * 4,
         *next = row + samerun_place(place + 1, job->size[2], 2) * 4;
    part_line((const float *)line + first, last - first, (float *)to, (float *)next);
    if (to < next) return zeros_before(zeros_before(zeros, to, (size_t)bytes), next, (size_t)fewer);
    return zeros_before(zeros_before(zeros, next, (size_t)fewer), to, (size_t)bytes);
}

/* Values first to last of a line, one by one. */
static void spread_line(const spread_t *job, char *row, const char *line, int64_t first, int64_t last) {
    const int64_t step = job->step[2];
    for (int64_t turn = 0; turn < job->apart;
         turn++) { /* each of these values goes one further than the one before, or step */
        const int64_t place = job->left[2] + (first + turn) * step;
        char *to = row + (size_t)samerun_place(place, job->size[2], job->apart) * job->real;
        if (job->real == 4) /* so that it is one move */
            for (int64_t w = first + turn; w < last; w += job->apart, to += 4 * step) memcpy(to, line + 4 * w, 4);
        else
            for (int64_t w = first + turn; w < last; w += job->apart, to += job->real * (size_t)step)
                memcpy(to, line + (size_t)w * job->real, job->real);
    }
}

static void spread_channels_range(void *args, int64_t begin, int64_t end) {
    const spread_t *job = args;
    size_t real = job->real;
    const int64_t x = job->left[2];
    int64_t first = 0, last = job->in[2];
    while (first < last && x + first * job->step[2] < 0) first++;
    while (first < last && x + (last - 1) * job->step[2] >= job->size[2]) last--;
    for (int64_t channel = begin; channel < end; channel++) {
        char *image = job->to + (size_t)(channel * samerun_volume(job->size)) * real;
        const char *source = job->from + (size_t)(channel * samerun_volume(job->in)) * real;
        const int side_by_side = job->step[2] == 1 && job->apart == 1;
        const int in_two = job->step[2] == 1 && job->apart == 2 && real == 4 && first < last;
        char *const image_end = image + (size_t)samerun_volume(job->size) * real, *zeros = image;
        if (!side_by_side && !in_two) memset(image, 0, (size_t)samerun_volume(job->size) * real), zeros = image_end;
        for (int64_t d = 0; d < job->in[0]; d++) {
            int64_t z = job->left[0] + d * job->step[0];
            if (z < 0 || z >= job->size[0]) continue;
            for (int64_t h = 0; h < job->in[1]; h++) {
                const int64_t y = job->left[1] + h * job->step[1];
                if (y < 0 || y >= job->size[1]) continue;
                const char *line = source + (size_t)((d * job->in[1] + h) * job->in[2]) * real;
                char *row = image + (size_t)((z * job->size[1] + y) * job->size[2]) * real;
                if (side_by_side || in_two)
                    for (size_t i = 0; i < (size_t)job->in[2] * real; i += 64) __builtin_prefetch(line + AHEAD + i);
                if (side_by_side) {
                    const size_t bytes = (size_t)(last - first) * real;
                    char *dst = row + (size_t)(x + first) * real;
                    zeros = zeros_before(zeros, dst, bytes);
                    copy_few(dst, line + (size_t)first * real, bytes);
                } else if (in_two) {
                    zeros = spread_in_two(job, zeros, row, line, first, last);
                } else spread_line(job, row, line, first, last);
            }
        }
        zero_few(zeros, image_end);
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
    samerun_parallel(channels, 1 + 16384 / (1 + samerun_volume(size)), spread_channels_range, &job);
    return to;
}

typedef struct {
    const char *from;
    char *to;
    int64_t inputs, outputs; /* of a group */
    size_t bytes;            /* of the taps */
} reorder_t;

/* Some inputs of all outputs at a time: lines on both sides are met again soon. */
static void reorder_range(void *args, int64_t begin, int64_t end) {
    const reorder_t *job = args;
    enum { INPUTS = 16 };
    for (int64_t start = begin; start < end; start += INPUTS) {
        const int64_t stop = start + INPUTS < end ? start + INPUTS : end;
        for (int64_t o = 0; o < job->outputs; o++)
            for (int64_t at = start, i = start % job->inputs, group = start / job->inputs; at < stop; at++, i++) {
                if (i == job->inputs) i = 0, group++;
                copy_few(job->to + (size_t)(at * job->outputs + o) * job->bytes,
                         job->from + (size_t)((group * job->outputs + o) * job->inputs + i) * job->bytes, job->bytes);
            }
    }
}

void *samerun_weight_by_inputs(const void *weight, const samerun_shape *s, size_t real) {
    const size_t bytes = (size_t)samerun_volume(s->taps) * real;
    char *to = samerun_scratch(SCRATCH_WEIGHT, (size_t)(s->outputs * (s->inputs / s->groups)) * bytes);
    reorder_t job = {weight, to, s->inputs / s->groups, s->outputs / s->groups, bytes};
    if (to != NULL) samerun_parallel(s->inputs, 1 + 65536 / (1 + job.outputs * (int64_t)bytes), reorder_range, &job);
    return to;
}
