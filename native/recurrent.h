/* One time step of an LSTM: what its kernels read and write. Every array has `batch` rows. */
#ifndef SAMERUN_RECURRENT_H
#define SAMERUN_RECURRENT_H

#include <stdint.h>

typedef struct {
    int64_t batch, hidden_size;
    const float *input_gates, *hidden_gates; /* [batch, 4, hidden_size]: input, forget, cell, output */
    const float *cell_before;
    float *gates; /* [4, batch, hidden_size] */
    float *cell, *tanh_cell, *hidden;
} lstm_step_t;

typedef struct {
    int64_t batch, hidden_size;
    const float *gates, *cell_before, *tanh_cell;
    const float *grad_output, *grad_hidden; /* what the hidden state gets, from two sides; NULL: nothing */
    int has_grad_cell;
    float *grad_cell;  /* of the cell, where has_grad_cell; becomes that of the cell before */
    float *grad_gates; /* [batch, 4, hidden_size] */
} lstm_step_backward_t;

#endif
