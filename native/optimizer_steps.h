/* Whole steps of optimizers: one parameter of float32 each, contiguous. */
#ifndef SAMERUN_OPTIMIZER_STEPS_H
#define SAMERUN_OPTIMIZER_STEPS_H

#include <stdint.h>

/* The layouts are those that kernels/optimizer_steps.py packs. */
typedef struct {
    float *parameter;
    const float *gradient;
    float *exp_avg, *exp_avg_sq, *max_exp_avg_sq; /* the last one NULL without amsgrad */
    int64_t n;
    float decay;        /* the parameter is multiplied by it first */
    float weight_decay; /* of the parameter is added to the gradient, where is_coupled */
    float one_minus_beta1, beta2, one_minus_beta2, root, eps, minus_step_size;
    int32_t is_coupled, maximize;
} adam_step_t;

typedef struct {
    float *parameter;
    const float *gradient;
    float *momentum_buffer; /* NULL without momentum */
    int64_t n;
    float weight_decay, momentum, one_minus_dampening, minus_lr;
    int32_t has_weight_decay, nesterov, maximize, unused;
} sgd_step_t;

#endif
