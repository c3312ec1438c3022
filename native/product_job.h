/* What the ways of a product share. */
#ifndef SAMERUN_PRODUCT_JOB_H
#define SAMERUN_PRODUCT_JOB_H

#include "product.h"

enum { LINE = 64 };
enum { BY_TILES, BY_COLUMNS, BY_LINES };

typedef struct {
    const samerun_matrix_product *product;
    const samerun_product_kernels *kernels;
    size_t real;
    int way; /* BY_... */
    int64_t row_step, column_step, row_pieces, column_pieces;
    int failed;
} product_job_t;

/* Where the block of k that starts at k, number `number` of all, ends. */
static inline int64_t k_block_end(const samerun_matrix_product *product, int64_t k, int64_t number) {
    return product->block_end != NULL ? product->block_end[number] : min_int64(k + SAMERUN_BLOCK, product->k);
}

static inline const char *element_address(const void *base, int64_t elements, size_t real) {
    return (const char *)base + elements * (int64_t)real;
}

#endif
