/* Class S for any dimensions and strides, running sums, and sums of values that share a key. */
#include "common.h"

/* As in sums.h. */
enum { TERM_X, TERM_SQUARE, TERM_SQUARE_FROM_CENTER, TERM_ABS, TERM_PRODUCT };
enum { MOST_DIMENSIONS = 64 };

/* Dimensions, those that lie behind one another as one longer one made one. Strides in elements. */
typedef struct {
    int64_t n, total;
    int64_t size[MOST_DIMENSIONS], stride[MOST_DIMENSIONS];
} dims_t;

/* Where element `index` (row-major) lies. */
DEVICE int64_t element_offset(const dims_t &dims, int64_t index) {
    if (dims.n == 1) return index * dims.stride[0];
    int64_t offset = 0;
    for (int64_t d = dims.n - 1; d >= 0; d--) {
        const int64_t above = index / dims.size[d];
        offset += (index - above * dims.size[d]) * dims.stride[d];
        index = above;
    }
    return offset;
}

DEVICE float absolute_value(float x) { return __builtin_fabsf(x); }
DEVICE double absolute_value(double x) { return __builtin_fabs(x); }

template <class Real>
DEVICE Real term_value(int term, Real x, Real center) {
    const Real d = x - center;
    return term == TERM_SQUARE               ? x * x
           : term == TERM_SQUARE_FROM_CENTER ? d * d
           : term == TERM_ABS                ? absolute_value(x)
                                             : x;
}

/* A warp for each block of each output: parts[output * blocks + block]. */
template <class Real>
DEVICE void reduce_row_blocks(int term, const Real *x, const Real *center, Real *block_results, int64_t blocks,
                              const dims_t &kept, const dims_t &reduced) {
    const int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (warp >= kept.total * blocks) return; /* whole warps */
    const int64_t out = warp / blocks, first = warp % blocks * SUM_BLOCK;
    const Real *from = x + element_offset(kept, out), middle = center ? center[out] : (Real)0;
    const Real sum = reduce_block_to_lane_0<Real>(
        term == TERM_PRODUCT, min_int64(reduced.total - first, SUM_BLOCK),
        [&](int64_t i) { return term_value(term, from[element_offset(reduced, first + i)], middle); });
    if (threadIdx.x % WARP == 0) block_results[warp] = sum;
}

/* 32 outputs that lie next to each other (x), and a thread (y) for each lane of one block of their sums.
 * The last kept dimension has stride 1 and `line` values. */
template <class Real>
DEVICE void reduce_column_blocks(int term, const Real *x, const Real *center, Real *block_results, int64_t blocks,
                                 const dims_t &kept, const dims_t &reduced) {
    __shared__ Real lanes[WARP][WARP + 1];
    const int64_t line = kept.size[kept.n - 1], groups = (line + WARP - 1) / WARP;
    const int64_t block = blockIdx.x % blocks, group = blockIdx.x / blocks % groups;
    const int64_t column = group * WARP + threadIdx.x, out = blockIdx.x / blocks / groups * line + column;
    const int64_t first = block * SUM_BLOCK, n = min_int64(reduced.total - first, SUM_BLOCK);
    const int is_product = term == TERM_PRODUCT;
    Real lane = reduction_identity<Real>(is_product);
    if (column < line) {
        const Real *from = x + element_offset(kept, out), middle = center ? center[out] : (Real)0;
#pragma unroll 4
        for (int64_t i = threadIdx.y; i < n; i += WARP)
            lane =
                add_or_multiply(is_product, lane, term_value(term, from[element_offset(reduced, first + i)], middle));
    }
    lanes[threadIdx.y][threadIdx.x] = lane;
    for (int half = WARP / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.y < half)
            lanes[threadIdx.y][threadIdx.x] =
                add_or_multiply(is_product, lanes[threadIdx.y][threadIdx.x], lanes[threadIdx.y + half][threadIdx.x]);
    }
    if (threadIdx.y == 0 && column < line) block_results[out * blocks + block] = lanes[0][threadIdx.x];
}

/* The tree over the blocks of each output, in place, by one thread block an output. */
template <class Real>
DEVICE void reduce_block_trees(int is_product, Real *parts, Real *out, int64_t blocks) {
    Real *mine = parts + blockIdx.x * blocks;
    for (int64_t left = blocks; left > 1; left = (left + 1) / 2) {
        for (int64_t first = 0; first < left / 2; first += blockDim.x) {
            const int64_t pair = first + threadIdx.x;
            const Real sum =
                pair < left / 2 ? add_or_multiply(is_product, mine[2 * pair], mine[2 * pair + 1]) : (Real)0;
            __syncthreads(); /* what is written now was read above, by this round or an earlier one */
            if (pair < left / 2) mine[pair] = sum;
        }
        __syncthreads();
        if (left % 2 && threadIdx.x == 0) mine[left / 2] = mine[left - 1];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = mine[0];
}

/* Running sums or products along the middle of [outer, n, inner]: a thread for each line. */
template <class Real>
DEVICE void cumulate(int is_product, const Real *x, Real *out, int64_t outer, int64_t n, int64_t inner) {
    EACH(line, outer * inner) {
        const int64_t at = line / inner * n * inner + line % inner;
        Real sum = x[at];
        out[at] = sum;
        for (int64_t i = 1; i < n; i++) {
            sum = add_or_multiply(is_product, sum, x[at + i * inner]);
            out[at + i * inner] = sum;
        }
    }
}

#define SUMS(Real, bits)                                                                                              \
    KERNEL reduce_row_blocks##bits(int term, const Real *x, const Real *center, Real *parts, int64_t blocks,          \
                                   dims_t kept, dims_t reduced) {                                                     \
        reduce_row_blocks(term, x, center, parts, blocks, kept, reduced);                                             \
    }                                                                                                                 \
    KERNEL_OF(WARP *WARP)                                                                                             \
    reduce_column_blocks##bits(int term, const Real *x, const Real *center, Real *parts, int64_t blocks, dims_t kept, \
                               dims_t reduced) {                                                                      \
        reduce_column_blocks(term, x, center, parts, blocks, kept, reduced);                                          \
    }                                                                                                                 \
    KERNEL reduce_block_trees##bits(int is_product, Real *parts, Real *out, int64_t blocks) {                         \
        reduce_block_trees(is_product, parts, out, blocks);                                                           \
    }                                                                                                                 \
    KERNEL cumulate##bits(int is_product, const Real *x, Real *out, int64_t outer, int64_t n, int64_t inner) {        \
        cumulate(is_product, x, out, outer, n, inner);                                                                \
    }                                                                                                                 \
    KERNEL fill##bits(Real *out, Real value, int64_t n) { EACH(i, n) out[i] = value; }
SUMS(float, 32)
SUMS(double, 64)
