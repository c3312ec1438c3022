/* What the algorithms of a GEMM share. */
#ifndef SAMERUN_GEMM_JOB_H
#define SAMERUN_GEMM_JOB_H

#include "gemm.h"

enum { LINE = 64 };
enum { BY_TILES, BY_COLUMNS, BY_LINES };

typedef struct {
    const samerun_gemm *gemm;
    const samerun_gemm_kernels *kernels;
    size_t element_size;
    int algorithm; /* BY_... */
    int64_t row_step, column_step, row_regions, column_regions;
    int failed;
} gemm_job_t;

/* Where the block of k that starts at k, number `block_index` of all, ends. */
static inline int64_t k_block_end(const samerun_gemm *gemm, int64_t block_begin, int64_t block_index) {
    return gemm->block_end != NULL ? gemm->block_end[block_index] : min_int64(block_begin + SAMERUN_BLOCK, gemm->k);
}

static inline const char *element_address(const void *base, int64_t element_offset, size_t element_size) {
    return (const char *)base + element_offset * (int64_t)element_size;
}

#endif
