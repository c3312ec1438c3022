/* Some columns of one block of k. */
#ifndef SAMERUN_GEMM_PANEL_H
#define SAMERUN_GEMM_PANEL_H

#include "gemm_job.h"

/* Packed, or where they lie (samerun_multiply_tile_unpacked_columns). */
typedef struct {
    int64_t depth;          /* how many k's are met */
    const char *packed, *base;
    const int64_t *steps;   /* packed: NULL, or at which steps of packed rows the k's are that are met */
    const int64_t *k, *at, *next; /* in place; next: those of the next panel, to be asked for */
    int64_t some_offsets[SAMERUN_BLOCK], some_steps[SAMERUN_BLOCK];
    int32_t some_runs[SAMERUN_BLOCK];
} panel_t;

/* How many columns from `column_begin` on make a panel: all of them meet the same taps. */
int64_t samerun_next_panel_width(const gemm_job_t *job, int64_t column_begin, int64_t column_end);
/* How many panels columns may be at most. */
int64_t samerun_max_panel_count(const gemm_job_t *job, int64_t column_begin, int64_t column_end);
int samerun_column_meets_all_taps(const gemm_job_t *job, int64_t column);
/* Set up the panel of a block of `depth` k's; `packed_dst_or_null` is NULL, or where its columns are packed now. */
void samerun_set_up_panel(const gemm_job_t *job, const char *b, int64_t column, int64_t columns, int64_t k,
                          int64_t depth, char *packed_dst_or_null, panel_t *panel);
/* One tile of it: written to c, or added to what stands there. */
void samerun_multiply_panel_tile(const gemm_job_t *job, const panel_t *panel, const char *packed_a, char *c,
                                 int64_t c_stride, int64_t rows, int64_t columns, int overwrite);

#endif
