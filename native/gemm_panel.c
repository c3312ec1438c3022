#include "gemm_panel.h"

int64_t samerun_next_panel_width(const gemm_job_t *job, int64_t column_begin, int64_t column_end) {
    const uint64_t *tap_mask = job->gemm->tap_mask;
    const int64_t most = min_int64(job->kernels->columns, column_end - column_begin);
    int64_t columns = tap_mask == NULL ? most : 1;
    while (columns < most && tap_mask[column_begin + columns] == tap_mask[column_begin]) columns++;
    return columns;
}

int64_t samerun_max_panel_count(const gemm_job_t *job, int64_t column_begin, int64_t column_end) {
    int64_t panels = ceil_divide(column_end - column_begin, job->kernels->columns);
    for (int64_t j = column_begin + 1; job->gemm->tap_mask != NULL && j < column_end; j++)
        panels += job->gemm->tap_mask[j] != job->gemm->tap_mask[j - 1];
    return panels;
}

int samerun_column_meets_all_taps(const gemm_job_t *job, int64_t column) {
    return job->gemm->tap_mask == NULL || __builtin_popcountll(job->gemm->tap_mask[column]) == job->gemm->taps;
}

/* The k's of a block whose taps are met; how many. */
static int64_t select_k_met_by_tap_mask(const gemm_job_t *job, uint64_t tap_mask, int64_t k_begin, int64_t depth,
                                        panel_t *panel) {
    const samerun_gemm *gemm = job->gemm;
    int64_t count = 0, tap = k_begin % gemm->taps;
    for (int64_t q = 0; q < depth; q++) {
        panel->some_offsets[count] = gemm->b_k.offset[k_begin + q];
        panel->some_steps[count] = q * job->kernels->rows;
        count += (int64_t)(tap_mask >> tap & 1);
        if (++tap == gemm->taps) tap = 0;
    }
    samerun_offset_table some = {panel->some_offsets, panel->some_runs, count};
    samerun_fill_run_lengths(&some);
    return count;
}

void samerun_set_up_panel(const gemm_job_t *job, const char *b, int64_t column, int64_t columns, int64_t k,
                          int64_t depth, char *packed_dst_or_null, panel_t *panel) {
    const samerun_gemm *gemm = job->gemm;
    const int all = samerun_column_meets_all_taps(job, column);
    panel->depth = all ? depth : select_k_met_by_tap_mask(job, gemm->tap_mask[column], k, depth, panel);
    panel->steps = all ? NULL : panel->some_steps;
    panel->k = gemm->b_k.offset + k;
    if (packed_dst_or_null == NULL || panel->depth == 0) return;
    const samerun_offset_table some = {panel->some_offsets, panel->some_runs, panel->depth};
    job->kernels->pack_columns(packed_dst_or_null, b, &gemm->b_columns, column, columns, all ? &gemm->b_k : &some,
                               all ? k : 0, panel->depth, gemm->b_slack);
}

void samerun_multiply_panel_tile(const gemm_job_t *job, const panel_t *panel, const char *packed_a, char *c,
                                 int64_t c_stride, int64_t rows, int64_t columns, int overwrite) {
    static const int64_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const samerun_gemm_kernels *kernels = job->kernels;
    _Static_assert(sizeof in_order / sizeof *in_order == SAMERUN_MOST_ROWS, "a place for each row of a tile");
    if (panel->packed == NULL)
        kernels->multiply_tile_unpacked_columns(panel->depth, packed_a, panel->base, panel->k, panel->at, panel->next,
                                                c, c_stride, (int)rows, overwrite);
    else if (panel->steps == NULL)
        kernels->multiply_packed_tile(panel->depth, packed_a, panel->packed, c, c_stride, (int)rows, (int)columns,
                                      overwrite);
    else
        kernels->multiply_tile_unpacked_rows(panel->depth, packed_a, in_order, panel->steps, panel->packed, c, c_stride,
                                             (int)rows, (int)columns, overwrite);
}
