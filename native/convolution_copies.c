/* An image copied into one with its padding, or with zeros between its values; a weight in another order. */
#include <string.h>

#include "convolution_copies.h"
#include "thread_pool.h"
#include "scratch.h"

enum { SLACK = 64, AHEAD = 2048 /* bytes that are asked for before they are copied */ };

typedef struct {
    const char *src;
    char *dst;
    size_t element_size;
    int64_t in_size[3], padded_size[3], step[3],
        pad_before[3]; /* value i of a dimension goes to left + i * step, if inside size */
    int64_t stride_phases;
} padded_copy_job_t;

/* memcpy of few bytes: moves of sizes that the compiler knows, which may overlap, take a fraction of a call's time. */
static inline void memcpy_short(char *dst, const char *src, size_t bytes) {
    if (bytes >= 32) {
        for (size_t i = 0; i < bytes - 32; i += 32) memcpy(dst + i, src + i, 32);
        memcpy(dst + bytes - 32, src + bytes - 32, 32);
    } else if (bytes >= 8 && bytes <= 16) memcpy(dst, src, 8), memcpy(dst + bytes - 8, src + bytes - 8, 8);
    else memcpy(dst, src, bytes);
}

static inline void zero_short_range_of_words(char *begin, char *end) {
    if (end - begin > 32) memset(begin, 0, (size_t)(end - begin));
    else
        for (; begin < end; begin += 4) memset(begin, 0, 4);
}

/* Every second value to `to`, the others to `odd`: as vectors. */
static void deinterleave_line(const float *restrict line, int64_t n, float *restrict even, float *restrict odd) {
    for (int64_t i = 0; i < n / 2; i++) even[i] = line[2 * i], odd[i] = line[2 * i + 1];
    if (n % 2) even[n / 2] = line[n - 1];
}

/* Zeros from `gap_begin` to where n bytes of values go; where those end. */
static inline char *zero_gap_and_return_values_end(char *gap_begin, char *dst, size_t value_bytes) {
    zero_short_range_of_words(gap_begin, dst);
    return dst + value_bytes;
}

/* Values value_begin to value_end of a line that is taken two apart, with the zeros before and between them; where
 * these end. */
static inline char *copy_line_in_two_phases_return_end(const padded_copy_job_t *job, char *gap_begin, char *row,
                                                       const char *line, int64_t value_begin, int64_t value_end) {
    const int64_t place = job->pad_before[2] + value_begin, bytes = (value_end - value_begin + 1) / 2 * 4,
                  fewer = (value_end - value_begin) / 2 * 4;
    char *dst = row + samerun_polyphase_index(place, job->padded_size[2], 2) * 4,
         *next = row + samerun_polyphase_index(place + 1, job->padded_size[2], 2) * 4;
    deinterleave_line((const float *)line + value_begin, value_end - value_begin, (float *)dst, (float *)next);
    if (dst < next)
        return zero_gap_and_return_values_end(zero_gap_and_return_values_end(gap_begin, dst, (size_t)bytes), next,
                                              (size_t)fewer);
    return zero_gap_and_return_values_end(zero_gap_and_return_values_end(gap_begin, next, (size_t)fewer), dst,
                                          (size_t)bytes);
}

/* Values value_begin to value_end of a line, one by one. */
static void copy_line_by_value(const padded_copy_job_t *job, char *row, const char *line, int64_t value_begin,
                               int64_t value_end) {
    const int64_t step = job->step[2];
    for (int64_t turn = 0; turn < job->stride_phases;
         turn++) { /* each of these values goes one further than the one before, or step */
        const int64_t place = job->pad_before[2] + (value_begin + turn) * step;
        char *dst =
            row + (size_t)samerun_polyphase_index(place, job->padded_size[2], job->stride_phases) * job->element_size;
        if (job->element_size == 4) /* so that it is one move */
            for (int64_t w = value_begin + turn; w < value_end; w += job->stride_phases, dst += 4 * step)
                memcpy(dst, line + 4 * w, 4);
        else
            for (int64_t w = value_begin + turn; w < value_end;
                 w += job->stride_phases, dst += job->element_size * (size_t)step)
                memcpy(dst, line + (size_t)w * job->element_size, job->element_size);
    }
}

static void copy_channels_padded_range(void *padded_copy_job, int64_t channel_begin, int64_t channel_end) {
    const padded_copy_job_t *job = padded_copy_job;
    size_t element_size = job->element_size;
    const int64_t x = job->pad_before[2];
    int64_t first = 0, last = job->in_size[2];
    while (first < last && x + first * job->step[2] < 0) first++;
    while (first < last && x + (last - 1) * job->step[2] >= job->padded_size[2]) last--;
    for (int64_t channel = channel_begin; channel < channel_end; channel++) {
        char *image = job->dst + (size_t)(channel * samerun_volume(job->padded_size)) * element_size;
        const char *source = job->src + (size_t)(channel * samerun_volume(job->in_size)) * element_size;
        const int side_by_side = job->step[2] == 1 && job->stride_phases == 1;
        const int in_two = job->step[2] == 1 && job->stride_phases == 2 && element_size == 4 && first < last;
        char *const image_end = image + (size_t)samerun_volume(job->padded_size) * element_size, *zeros = image;
        if (!side_by_side && !in_two)
            memset(image, 0, (size_t)samerun_volume(job->padded_size) * element_size), zeros = image_end;
        for (int64_t d = 0; d < job->in_size[0]; d++) {
            int64_t z = job->pad_before[0] + d * job->step[0];
            if (z < 0 || z >= job->padded_size[0]) continue;
            for (int64_t h = 0; h < job->in_size[1]; h++) {
                const int64_t y = job->pad_before[1] + h * job->step[1];
                if (y < 0 || y >= job->padded_size[1]) continue;
                const char *line = source + (size_t)((d * job->in_size[1] + h) * job->in_size[2]) * element_size;
                char *row = image + (size_t)((z * job->padded_size[1] + y) * job->padded_size[2]) * element_size;
                if (side_by_side || in_two)
                    for (size_t i = 0; i < (size_t)job->in_size[2] * element_size; i += 64)
                        __builtin_prefetch(line + AHEAD + i);
                if (side_by_side) {
                    const size_t bytes = (size_t)(last - first) * element_size;
                    char *dst = row + (size_t)(x + first) * element_size;
                    zeros = zero_gap_and_return_values_end(zeros, dst, bytes);
                    memcpy_short(dst, line + (size_t)first * element_size, bytes);
                } else if (in_two) {
                    zeros = copy_line_in_two_phases_return_end(job, zeros, row, line, first, last);
                } else copy_line_by_value(job, row, line, first, last);
            }
        }
        zero_short_range_of_words(zeros, image_end);
    }
}

char *samerun_copy_padded_to_scratch_if_needed(const void *src, int64_t channels, const int64_t *in_size,
                                               const int64_t *padded_size, const int64_t *step,
                                               const int64_t *pad_before, int64_t stride_phases, size_t element_size,
                                               int *needs_copy) {
    *needs_copy = stride_phases != 1 || memcmp(in_size, padded_size, 3 * sizeof *in_size) != 0;
    for (int i = 0; i < 3; i++) *needs_copy |= pad_before[i] != 0 || (step[i] != 1 && in_size[i] > 1);
    if (!*needs_copy) return NULL;
    char *dst =
        samerun_borrow_scratch(SCRATCH_IMAGE, (size_t)(channels * samerun_volume(padded_size)) * element_size + SLACK);
    if (dst == NULL) return NULL;
    padded_copy_job_t job = {src, dst, element_size, {0}, {0}, {0}, {0}, stride_phases};
    memcpy(job.in_size, in_size, sizeof job.in_size);
    memcpy(job.padded_size, padded_size, sizeof job.padded_size);
    memcpy(job.step, step, sizeof job.step);
    memcpy(job.pad_before, pad_before, sizeof job.pad_before);
    samerun_parallel_for(channels, 1 + 16384 / (1 + samerun_volume(padded_size)), copy_channels_padded_range, &job);
    return dst;
}

typedef struct {
    const char *src;
    char *dst;
    int64_t inputs, outputs; /* of a group */
    size_t bytes;            /* of the taps */
} weight_transpose_job_t;

/* Some inputs of all outputs at a time: lines on both sides are met again soon. */
static void transpose_weight_range(void *weight_transpose_job, int64_t input_begin, int64_t input_end) {
    const weight_transpose_job_t *job = weight_transpose_job;
    enum { INPUTS = 16 };
    for (int64_t start = input_begin; start < input_end; start += INPUTS) {
        const int64_t stop = start + INPUTS < input_end ? start + INPUTS : input_end;
        for (int64_t o = 0; o < job->outputs; o++)
            for (int64_t at = start, i = start % job->inputs, group = start / job->inputs; at < stop; at++, i++) {
                if (i == job->inputs) i = 0, group++;
                memcpy_short(job->dst + (size_t)(at * job->outputs + o) * job->bytes,
                             job->src + (size_t)((group * job->outputs + o) * job->inputs + i) * job->bytes,
                             job->bytes);
            }
    }
}

void *samerun_borrow_transposed_weight_or_null(const void *weight, const samerun_convolution_shape *shape,
                                               size_t element_size) {
    const size_t bytes = (size_t)samerun_volume(shape->taps) * element_size;
    char *dst =
        samerun_borrow_scratch(SCRATCH_WEIGHT, (size_t)(shape->outputs * (shape->inputs / shape->groups)) * bytes);
    weight_transpose_job_t job = {weight, dst, shape->inputs / shape->groups, shape->outputs / shape->groups, bytes};
    if (dst != NULL)
        samerun_parallel_for(shape->inputs, 1 + 65536 / (1 + job.outputs * (int64_t)bytes), transpose_weight_range,
                             &job);
    return dst;
}
