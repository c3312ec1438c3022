#include "product_panel.h"

int64_t samerun_count_panel_columns(const product_job_t *job, int64_t column, int64_t column_end) {
    const uint64_t *tap_mask = job->product->tap_mask;
    const int64_t most = min_int64(job->kernels->columns, column_end - column);
    int64_t columns = tap_mask == NULL ? most : 1;
    while (columns < most && tap_mask[column + columns] == tap_mask[column]) columns++;
    return columns;
}

int64_t samerun_count_most_panels(const product_job_t *job, int64_t column, int64_t column_end) {
    int64_t panels = ceil_divide(column_end - column, job->kernels->columns);
    for (int64_t j = column + 1; job->product->tap_mask != NULL && j < column_end; j++)
        panels += job->product->tap_mask[j] != job->product->tap_mask[j - 1];
    return panels;
}

int samerun_panel_meets_all_taps(const product_job_t *job, int64_t column) {
    return job->product->tap_mask == NULL || __builtin_popcountll(job->product->tap_mask[column]) == job->product->taps;
}

/* The k's of a block whose taps are met; how many. */
static int64_t select_k_of_tap_mask(const product_job_t *job, uint64_t tap_mask, int64_t k, int64_t depth,
                                    panel_t *panel) {
    const samerun_matrix_product *product = job->product;
    int64_t count = 0, tap = k % product->taps;
    for (int64_t q = 0; q < depth; q++) {
        panel->some_offsets[count] = product->b_k.offset[k + q];
        panel->some_steps[count] = q * job->kernels->rows;
        count += (int64_t)(tap_mask >> tap & 1);
        if (++tap == product->taps) tap = 0;
    }
    samerun_offset_table some = {panel->some_offsets, panel->some_runs, count};
    samerun_find_runs(&some);
    return count;
}

void samerun_set_up_panel(const product_job_t *job, const char *b, int64_t column, int64_t columns, int64_t k,
                          int64_t depth, char *pack, panel_t *panel) {
    const samerun_matrix_product *product = job->product;
    const int all = samerun_panel_meets_all_taps(job, column);
    panel->depth = all ? depth : select_k_of_tap_mask(job, product->tap_mask[column], k, depth, panel);
    panel->steps = all ? NULL : panel->some_steps;
    panel->k = product->b_k.offset + k;
    if (pack == NULL || panel->depth == 0) return;
    const samerun_offset_table some = {panel->some_offsets, panel->some_runs, panel->depth};
    job->kernels->pack_columns(pack, b, &product->b_columns, column, columns, all ? &product->b_k : &some, all ? k : 0,
                               panel->depth, product->b_slack);
}

void samerun_multiply_panel_tile(const product_job_t *job, const panel_t *panel, const char *a, char *c,
                                 int64_t c_stride, int64_t rows, int64_t columns, int first) {
    static const int64_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const samerun_product_kernels *kernels = job->kernels;
    _Static_assert(sizeof in_order / sizeof *in_order == SAMERUN_MOST_ROWS, "a place for each row of a tile");
    if (panel->packed == NULL)
        kernels->tile_of_unpacked_columns(panel->depth, a, panel->base, panel->k, panel->at, panel->next, c, c_stride,
                                          (int)rows, first);
    else if (panel->steps == NULL)
        kernels->tile(panel->depth, a, panel->packed, c, c_stride, (int)rows, (int)columns, first);
    else
        kernels->tile_of_unpacked_rows(panel->depth, a, in_order, panel->steps, panel->packed, c, c_stride, (int)rows,
                                       (int)columns, first);
}
