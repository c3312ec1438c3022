/* The inner loops, compiled once for each level from kernels.inc; what lies around them chooses by kernels(). */
#ifndef SAMERUN_KERNELS_H
#define SAMERUN_KERNELS_H

#include <stdint.h>

#include "optimizer_steps.h"
#include "recurrent.h"

enum { MOST_FUNCTIONS = 32 };

/* Functions of two arguments, out[i] = f(x[i], y[i]). */
enum { POW, ATAN2, HYPOT, BINARY_FUNCTIONS };

/* Activations: out[i] of x[i], and, for the backward ones, of the gradient. */
enum { GELU, GELU_TANH, SILU, GELU_BACKWARD, GELU_TANH_BACKWARD, SILU_BACKWARD, ACTIVATIONS };

/* What is done to a row: of x alone, or of the result y and the gradient g. */
enum { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP, SOFTMAX_BACKWARD, LOG_SOFTMAX_BACKWARD, SOFTMAX_FAMILY };

/* Steps of optimizers, in place: x + (y - x) * value, x + (y * value) * z, x + (y * value) / z. */
enum { LERP, ADDCMUL, ADDCDIV, UPDATES };

/* Normalising a row. Value j of it has weight[j / inner] and bias[j / inner], or 1 and 0 where those are NULL. */
typedef struct {
    int rms; /* no mean is taken off */
    float eps;
    int64_t n, inner;
    const float *weight, *bias;
} row_norm_t;

enum { NORM_ROWS = 2 }; /* with 3 and 4, of 768 values, it takes as long; with 1, a fifth more */

/* One channel of a batch norm. A weight that is not there is 1 and a bias -0.0, which change nothing. */
typedef struct {
    int training;
    float weight, bias, mean, rstd, center, slope; /* center, slope: the means of h and of h*y (norms.c) */
} channel_norm_t;

typedef struct {
    /* Class R (functions/float_functions.h); y may be x. */
    void (*function[MOST_FUNCTIONS])(const float *x, float *y, int64_t n);
    void (*binary_function)(int function, const float *x, const float *y, float *out, int64_t n);
    void (*activation)(int activation, const float *x, const float *grad, float *out, int64_t n);
    void (*update)(int update, float *x, const float *y, const float *z, float value, int64_t n);
    /* A whole step for elements begin to end of a parameter; its arrays share no memory. */
    void (*adam_step)(const adam_step_t *step, int64_t begin, int64_t end);
    void (*sgd_step)(const sgd_step_t *step, int64_t begin, int64_t end);
    /* Rows of one time step of an LSTM. */
    void (*lstm_step)(const lstm_step_t *step, int64_t row_begin, int64_t row_end);
    void (*lstm_step_backward)(const lstm_step_backward_t *step, int64_t row_begin, int64_t row_end);
    void (*softmax_family_row)(int function, const float *input_or_output, const float *grad_output, float *result,
                               int64_t n);
    void (*normalize_row)(const row_norm_t *norm, const float *x, float *out, float *mean, float *rstd);
    /* Also the terms of the gradient of the weight, where `weight_grad_terms` is not NULL. */
    void (*normalize_row_backward)(const row_norm_t *norm, const float *x, const float *grad_output, float mean,
                                   float rstd, float *grad_input, float *weight_grad_terms);
    /* 1 to NORM_ROWS rows, `apart` rows from each other; these terms are added to weight_grad_sum, the gradients to
     * bias_grad_sum. */
    void (*normalize_few_rows_backward)(const row_norm_t *norm, const float *x, const float *grad_output,
                                        const float *mean, const float *rstd, float *grad_input, int64_t row_stride,
                                        int row_count, float *weight_grad_sum, float *bias_grad_sum);
    void (*channel)(const channel_norm_t *channel, const float *x, float *out, int64_t n);
    void (*channel_gradient_sums)(const channel_norm_t *channel, const float *x, const float *grad_output, int64_t n,
                                  float sums[4]);
    void (*channel_input_gradient)(const channel_norm_t *channel, const float *x, const float *grad_output,
                                   float *grad_input, int64_t n);
    /* n values of a draw from number `first` (a multiple of 4) on */
    void (*uniform)(uint64_t seed, uint64_t draw_number, int64_t first, float *out, int64_t n);
    void (*normal)(uint64_t seed, uint64_t draw_number, int64_t first, float *out, int64_t n);
    /* Class S over one block: 0 <= n <= SUM_BLOCK values next to each other. */
    float (*block_sum32)(const float *x, int64_t n);
    double (*block_sum64)(const double *x, int64_t n);
    float (*block_prod32)(const float *x, int64_t n);
    double (*block_prod64)(const double *x, int64_t n);
    /* block_sum of `count` spans of n values, one beginning `stride` values behind the other. */
    void (*sums_of_spans32)(const float *x, int64_t stride, int64_t n, int64_t count, int alone, float *out);
    void (*sums_of_spans64)(const double *x, int64_t stride, int64_t n, int64_t count, int alone, double *out);
    /* The terms of a sum (sums.h); out may be x. */
    void (*compute_terms32)(int term, const float *x, float center, float *out, int64_t n);
    void (*compute_terms64)(int term, const double *x, double center, double *out, int64_t n);
    /* TERM_X, TERM_SQUARE or TERM_SQUARE_FROM_CENTER of n values, a multiple of SUM_LANES, added to lanes[SUM_LANES] */
    void (*add_run_to_lanes32)(int term, const float *x, float center, int64_t n, float *lanes);
    void (*add_run_to_lanes64)(int term, const double *x, double center, int64_t n, double *lanes);
    /* `rows` rows of terms, row r at x + offset[r], added to lanes[r % SUM_LANES][columns] ... */
    void (*add_rows_to_lanes32)(int term, const float *x, const int64_t *offset, int64_t rows, int64_t columns,
                                const float *center, float *lanes);
    void (*add_rows_to_lanes64)(int term, const double *x, const int64_t *offset, int64_t rows, int64_t columns,
                                const double *center, double *lanes);
    /* ... and the lanes of each column to one. */
    void (*reduce_lanes_of_columns32)(int product, float *lanes, int64_t columns, float *out);
    void (*reduce_lanes_of_columns64)(int product, double *lanes, int64_t columns, double *out);
} kernels_t;

/* Those of the level in force. */
const kernels_t *samerun_current_kernels(void);

#endif
