/* The entries for Python of an LSTM's layer: all time steps in one direction, and their backward pass. */
#include "recurrent.h"

#include <stddef.h>
#include <string.h>

#include "gemm.h"
#include "kernels.h"
#include "thread_pool.h"

static int64_t min_rows_per_piece(int64_t hidden_size) { return 1 + 2048 / hidden_size; }

static void lstm_rows(void *step, int64_t row_begin, int64_t row_end) {
    samerun_current_kernels()->lstm_step(step, row_begin, row_end);
}

static void lstm_rows_backward(void *step, int64_t row_begin, int64_t row_end) {
    samerun_current_kernels()->lstm_step_backward(step, row_begin, row_end);
}

/* sizes: times, batch, hidden_size, and 1 if the last time comes first. The arrays are contiguous: input_gates [times,
 * batch, 4, hidden_size], transposed_w_hh [hidden_size, 4, hidden_size], b_hh [4, hidden_size] or NULL, h0 and c0
 * [batch, hidden_size], hidden_gates [batch, 4, hidden_size], which is overwritten; and what is found: gates [times, 4,
 * batch, hidden_size], the others [times, batch, hidden_size]. Done, or no memory. */
samerun_status samerun_lstm_forward(const int64_t *sizes, const float *input_gates, const float *transposed_w_hh,
                                    const float *b_hh_or_null, const float *h0, const float *c0,
                                    float *hidden_gates_scratch, float *gates, float *cells, float *tanh_cells,
                                    float *hiddens) {
    const int64_t times = sizes[0], batch = sizes[1], h = sizes[2], state = batch * h;
    const int64_t product[] = {1, batch, 4 * h, h, 0, h, 1, 0, 4 * h, 1, 0, 4 * h, 1, 0, 0, 1};
    for (int64_t number = 0; number < times; number++) {
        const int64_t t = sizes[3] ? times - 1 - number : number, before = sizes[3] ? t + 1 : t - 1;
        const float *hidden_before = number ? hiddens + before * state : h0;
        const samerun_status status =
            samerun_matmul(0, product, hidden_before, transposed_w_hh, hidden_gates_scratch, b_hh_or_null);
        if (status != SAMERUN_DONE) return status;
        lstm_step_t step = {.batch = batch,
                            .hidden_size = h,
                            .input_gates = input_gates + t * 4 * state,
                            .hidden_gates = hidden_gates_scratch,
                            .cell_before = number ? cells + before * state : c0,
                            .gates = gates + t * 4 * state,
                            .cell = cells + t * state,
                            .tanh_cell = tanh_cells + t * state,
                            .hidden = hiddens + t * state};
        samerun_parallel_for(batch, min_rows_per_piece(h), lstm_rows, &step);
    }
    return SAMERUN_DONE;
}

/* The gradients of input_gates, h0 and c0, which are overwritten. grad_outputs [times, batch, hidden_size], and
 * grad_last_hidden and grad_last_cell [batch, hidden_size], may be NULL, but not all three. */
samerun_status samerun_lstm_backward(const int64_t *sizes, const float *w_hh, const float *gates, const float *cells,
                                     const float *tanh_cells, const float *c0, const float *grad_outputs_or_null,
                                     const float *grad_last_hidden, const float *grad_last_cell, float *grad_gates,
                                     float *grad_h0, float *grad_c0) {
    const int64_t times = sizes[0], batch = sizes[1], h = sizes[2], state = batch * h;
    const int64_t product[] = {1, batch, h, 4 * h, 0, 4 * h, 1, 0, h, 1, 0, h, 1, 0, 0, 0};
    if (grad_last_cell != NULL) memcpy(grad_c0, grad_last_cell, (size_t)state * sizeof(float));
    for (int64_t number = times - 1; number >= 0; number--) {
        const int64_t t = sizes[3] ? times - 1 - number : number, before = sizes[3] ? t + 1 : t - 1;
        const int is_last = number == times - 1;
        lstm_step_backward_t step = {.batch = batch,
                                     .hidden_size = h,
                                     .gates = gates + t * 4 * state,
                                     .cell_before = number ? cells + before * state : c0,
                                     .tanh_cell = tanh_cells + t * state,
                                     .grad_output = grad_outputs_or_null ? grad_outputs_or_null + t * state : NULL,
                                     .grad_hidden = is_last ? grad_last_hidden : grad_h0,
                                     .has_grad_cell = !is_last || grad_last_cell != NULL,
                                     .grad_cell = grad_c0,
                                     .grad_gates = grad_gates + t * 4 * state};
        samerun_parallel_for(batch, min_rows_per_piece(h), lstm_rows_backward, &step);
        const samerun_status status = samerun_matmul(0, product, step.grad_gates, w_hh, grad_h0, NULL);
        if (status != SAMERUN_DONE) return status;
    }
    return SAMERUN_DONE;
}
