/* Normalisations and their gradients: the entries for Python. Arrays are float32 and contiguous. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "thread_pool.h"
#include "portable.h"
#include "status.h"

typedef struct {
    row_norm_t norm;
    int64_t groups; /* rows i, i + groups, ... share weights */
    const float *x, *grad, *mean_given, *rstd_given;
    float *out, *mean, *rstd, *terms, *lanes; /* lanes: of each block of rows SUM_LANES sums for weight and bias */
    int64_t rows;
} norm_job_t;

static row_norm_t row_norm_with_affine_params_at(const norm_job_t *job, int64_t row) {
    row_norm_t norm = job->norm;
    const int64_t skipped = row % job->groups * (norm.n / norm.inner);
    if (norm.weight) norm.weight += skipped;
    if (norm.bias) norm.bias += skipped;
    return norm;
}

static void normalize_rows_range(void *norm_job, int64_t row_begin, int64_t row_end) {
    const norm_job_t *job = norm_job;
    for (int64_t i = row_begin; i < row_end; i++) {
        const row_norm_t norm = row_norm_with_affine_params_at(job, i);
        const int64_t at = i * norm.n;
        samerun_current_kernels()->normalize_row(&norm, job->x + at, job->out + at, job->mean + i, job->rstd + i);
    }
}

/* Rows of n values: value j of row i has the weight number (i % weight_row_period * n + j) / values_per_weight. */
void samerun_normalize_rows(int is_rms_norm, float eps, const float *x, const float *weight_or_null,
                            const float *bias_or_null, float *out, float *mean, float *rstd, int64_t rows, int64_t n,
                            int64_t weight_row_period, int64_t values_per_weight) {
    norm_job_t job = {.norm = {is_rms_norm, eps, n, values_per_weight, weight_or_null, bias_or_null},
                      .groups = weight_row_period,
                      .x = x,
                      .out = out,
                      .mean = mean,
                      .rstd = rstd};
    samerun_parallel_for(rows, 1 + 8192 / (n + 1), normalize_rows_range, &job);
}

static void normalize_rows_backward_range(void *norm_job, int64_t row_begin, int64_t row_end) {
    const norm_job_t *job = norm_job;
    for (int64_t i = row_begin; i < row_end; i++) {
        const row_norm_t norm = row_norm_with_affine_params_at(job, i);
        const int64_t at = i * norm.n;
        samerun_current_kernels()->normalize_row_backward(&norm, job->x + at, job->grad + at, job->mean_given[i],
                                                          job->rstd_given[i], job->out + at,
                                                          job->terms ? job->terms + at : NULL);
    }
}

/* `weight_grad_terms`: NULL, or room for the terms that sum to the gradient of the weight. */
void samerun_normalize_rows_backward(int is_rms_norm, const float *x, const float *grad_output,
                                     const float *weight_or_null, const float *mean, const float *rstd,
                                     float *grad_input, float *weight_grad_terms_or_null, int64_t rows, int64_t n,
                                     int64_t weight_row_period, int64_t values_per_weight) {
    norm_job_t job = {.norm = {is_rms_norm, 0, n, values_per_weight, weight_or_null, NULL},
                      .groups = weight_row_period,
                      .x = x,
                      .grad = grad_output,
                      .mean_given = mean,
                      .rstd_given = rstd,
                      .out = grad_input,
                      .terms = weight_grad_terms_or_null};
    samerun_parallel_for(rows, 1 + 8192 / (n + 1), normalize_rows_backward_range, &job);
}

enum { LANES_AT_HAND = 256 << 10 }; /* bytes of lanes that stay in the second cache */

/* Item i: the rows of one lane of one block, whose terms are added in ascending order. Lanes go side by side, so
 * that rows are read one after the other. */
static void normalize_lanes_backward_range(void *norm_job, int64_t lane_begin, int64_t lane_end) {
    const norm_job_t *job = norm_job;
    const int64_t n = job->norm.n, fitting = LANES_AT_HAND / (2 * n * (int64_t)sizeof *job->lanes);
    for (int64_t i = lane_begin, lanes_end; i < lane_end; i = lanes_end) {
        const int64_t first = i / SUM_LANES * SUM_BLOCK,
                      last = first + SUM_BLOCK < job->rows ? first + SUM_BLOCK : job->rows;
        lanes_end = i + (fitting < 1 ? 1 : fitting);
        if (lanes_end > (i / SUM_LANES + 1) * SUM_LANES) lanes_end = (i / SUM_LANES + 1) * SUM_LANES;
        if (lanes_end > lane_end) lanes_end = lane_end;
        for (int64_t j = i * 2 * n; j < lanes_end * 2 * n; j++) job->lanes[j] = ABSENT32;
        for (int64_t turn = first; turn < last; turn += NORM_ROWS * SUM_LANES)
            for (int64_t l = i; l < lanes_end && turn + l % SUM_LANES < last; l++) {
                const int64_t row = turn + l % SUM_LANES, left = (last - row + SUM_LANES - 1) / SUM_LANES;
                float *lane = job->lanes + l * 2 * n;
                samerun_current_kernels()->normalize_few_rows_backward(
                    &job->norm, job->x + row * n, job->grad + row * n, job->mean_given + row, job->rstd_given + row,
                    job->out + row * n, SUM_LANES, left < NORM_ROWS ? (int)left : NORM_ROWS, lane, lane + n);
            }
    }
}

static void add_elementwise_inplace(float *restrict accumulator, const float *restrict addend, int64_t n) {
    for (int64_t j = 0; j < n; j++) accumulator[j] = accumulator[j] + addend[j];
}

/* Item i: a column of the lanes. Those of each block to one, then the blocks, in the first. */
static void reduce_lane_columns_range(void *norm_job, int64_t column_begin, int64_t column_end) {
    const norm_job_t *job = norm_job;
    const int64_t n = column_end - column_begin, line = 2 * job->norm.n,
                  blocks = (job->rows + SUM_BLOCK - 1) / SUM_BLOCK;
    float *column = job->lanes + column_begin;
    for (int64_t block = 0; block < blocks; block++) {
        float *first = column + block * SUM_LANES * line;
        for (int half = SUM_LANES / 2; half; half /= 2)
            for (int l = 0; l < half; l++) add_elementwise_inplace(first + l * line, first + (l + half) * line, n);
        if (block) memcpy(column + block * line, first, (size_t)n * sizeof *first);
    }
    for (int64_t left = blocks; left > 1; left = (left + 1) / 2) {
        for (int64_t pair = 0; pair < left / 2; pair++) {
            add_elementwise_inplace(column + 2 * pair * line, column + (2 * pair + 1) * line, n);
            if (pair) memcpy(column + pair * line, column + 2 * pair * line, (size_t)n * sizeof *column);
        }
        if (left % 2) memmove(column + left / 2 * line, column + (left - 1) * line, (size_t)n * sizeof *column);
    }
}

/* Rows that all have the same n weights and biases, or none: also their gradients. Done, or no memory. */
samerun_status samerun_normalize_rows_backward_with_weight(int is_rms_norm, const float *x, const float *grad_output,
                                                           const float *weight_or_null, const float *mean,
                                                           const float *rstd, float *grad_input, float *weight_grad,
                                                           float *bias_grad, int64_t rows, int64_t n) {
    const int64_t blocks = (rows + SUM_BLOCK - 1) / SUM_BLOCK, line = 2 * n;
    if (rows == 0 || n == 0) {
        for (int64_t j = 0; j < n; j++) weight_grad[j] = bias_grad[j] = 0;
        return SAMERUN_DONE;
    }
    float *lanes = malloc((size_t)(blocks * SUM_LANES * line) * sizeof *lanes);
    if (!lanes) return SAMERUN_NO_MEMORY;
    norm_job_t job = {.norm = {is_rms_norm, 0, n, 1, weight_or_null, NULL},
                      .groups = 1,
                      .x = x,
                      .grad = grad_output,
                      .mean_given = mean,
                      .rstd_given = rstd,
                      .out = grad_input,
                      .lanes = lanes,
                      .rows = rows};
    const int64_t all = blocks * SUM_LANES, rows_of_lane = rows / all + 1;
    int64_t together =
        all / samerun_get_num_threads_for_new_job(); /* rows of several lanes follow each other: they are read faster */
    if (together > 8) together = 8;
    const int64_t enough = 1 + 8192 / (rows_of_lane * (n + 1));
    samerun_parallel_for(all, enough > together ? enough : together, normalize_lanes_backward_range, &job);
    samerun_parallel_for(line, 1 + 32768 / all, reduce_lane_columns_range, &job);
    memcpy(weight_grad, lanes, (size_t)n * sizeof *lanes);
    memcpy(bias_grad, lanes + n, (size_t)n * sizeof *lanes);
    free(lanes);
    return SAMERUN_DONE;
}

typedef struct {
    const float *x, *grad, *weight, *bias, *mean, *rstd;
    float *out, *sums; /* four for each channel and block: sums[(which * channels + channel) * blocks + block] */
    int64_t images, channels, inner, blocks;
    int training;
} channels_job_t;

static channel_norm_t norm_params_of_channel(const channels_job_t *job, int64_t channel) {
    return (channel_norm_t){.training = job->training,
                            .weight = job->weight ? job->weight[channel] : 1,
                            .bias = job->bias ? job->bias[channel] : ABSENT32,
                            .mean = job->mean[channel],
                            .rstd = job->rstd[channel]};
}

/* Item i: one block of one channel, whose values lie in runs of `inner`. */
static void batch_norm_gradient_partial_sums_range(void *channels_job, int64_t block_begin, int64_t block_end) {
    const channels_job_t *job = channels_job;
    float x[SUM_BLOCK], g[SUM_BLOCK], found[4];
    for (int64_t i = block_begin; i < block_end; i++) {
        const int64_t channel = i / job->blocks, first = i % job->blocks * SUM_BLOCK, all = job->images * job->inner;
        const int64_t n = all - first < SUM_BLOCK ? all - first : SUM_BLOCK;
        const float *xs = x, *gs = g;
        const channel_norm_t params = norm_params_of_channel(job, channel);
        for (int64_t done = 0; done < n;) {
            const int64_t image = (first + done) / job->inner, at = (first + done) % job->inner;
            const int64_t place = (image * job->channels + channel) * job->inner + at;
            const int64_t run = job->inner - at < n - done ? job->inner - at : n - done;
            if (run == n) {
                xs = job->x + place, gs = job->grad + place;
                break;
            }
            memcpy(x + done, job->x + place, (size_t)run * sizeof *x);
            memcpy(g + done, job->grad + place, (size_t)run * sizeof *g);
            done += run;
        }
        samerun_current_kernels()->channel_gradient_sums(&params, xs, gs, n, found);
        for (int which = 0; which < (job->training ? 4 : 2); which++)
            job->sums[(which * job->channels + channel) * job->blocks + i % job->blocks] = found[which];
    }
}

static void batch_norm_input_gradient_range(void *channels_job, int64_t plane_begin, int64_t plane_end) {
    const channels_job_t *job = channels_job;
    const float count = (float)(job->images * job->inner);
    for (int64_t i = plane_begin; i < plane_end; i++) {
        const int64_t channel = i % job->channels, at = i * job->inner;
        channel_norm_t params = norm_params_of_channel(job, channel);
        if (job->training) {
            params.center = job->sums[(2 * job->channels + channel) * job->blocks] / count;
            params.slope = job->sums[(3 * job->channels + channel) * job->blocks] / count;
        }
        samerun_current_kernels()->channel_input_gradient(&params, job->x + at, job->grad + at, job->out + at,
                                                          job->inner);
    }
}

static void batch_norm_normalize_planes_range(void *channels_job, int64_t plane_begin, int64_t plane_end) {
    const channels_job_t *job = channels_job;
    for (int64_t i = plane_begin; i < plane_end; i++) {
        const channel_norm_t params = norm_params_of_channel(job, i % job->channels);
        samerun_current_kernels()->channel(&params, job->x + i * job->inner, job->out + i * job->inner, job->inner);
    }
}

/* ((x - mean) * rstd) * weight + bias of [images, channels, inner], with one number each for a channel. */
void samerun_normalize_channels(const float *x, const float *weight_or_null, const float *bias_or_null,
                                const float *mean, const float *rstd, float *out, int64_t images, int64_t channels,
                                int64_t inner) {
    channels_job_t job = {x, NULL, weight_or_null, bias_or_null, mean, rstd, out, NULL, images, channels, inner, 0, 0};
    samerun_parallel_for(images * channels, 1 + 8192 / (inner + 1), batch_norm_normalize_planes_range, &job);
}

/* Batch norm of [images, channels, inner], which is not empty: the gradients of x, weight and bias. Done, or no
 * memory. */
samerun_status samerun_normalize_channels_backward(int training, const float *x, const float *grad_output,
                                                   const float *weight_or_null, const float *mean, const float *rstd,
                                                   float *grad_input, float *weight_grad, float *bias_grad,
                                                   int64_t images, int64_t channels, int64_t inner) {
    const int64_t blocks = (images * inner + SUM_BLOCK - 1) / SUM_BLOCK;
    float *sums = malloc((size_t)(4 * channels * blocks) * sizeof *sums);
    if (!sums) return SAMERUN_NO_MEMORY;
    channels_job_t job = {x,    grad_output, weight_or_null, NULL,  mean,   rstd,    grad_input,
                          sums, images,      channels,       inner, blocks, training};
    const int64_t values = images * inner < SUM_BLOCK ? images * inner : SUM_BLOCK;
    samerun_parallel_for(channels * blocks, 1 + 8192 / values, batch_norm_gradient_partial_sums_range, &job);
    for (int64_t i = 0; i < (training ? 4 : 2) * channels; i++) {
        float *mine = sums + i * blocks;
        BLOCKS_TO_ONE(mine, blocks, PLUS)
    }
    for (int64_t c = 0; c < channels; c++) {
        bias_grad[c] = sums[c * blocks];
        weight_grad[c] = sums[(channels + c) * blocks];
    }
    samerun_parallel_for(images * channels, 1 + 8192 / (inner + 1), batch_norm_input_gradient_range, &job);
    free(sums);
    return SAMERUN_DONE;
}
