/* Values that go to places named by a key. `sorted_keys` are sorted, `order` says which value each key belongs to (a
 * stable sort, so that values of one place come in ascending order of their index). A thread whose key is the first
 * of its place does all the work of that place: nothing is written twice, and no order depends on threads. */
#include "common.h"

DEVICE int is_first_of_segment(const int64_t *sorted_keys, int64_t p) {
    return p == 0 || sorted_keys[p] != sorted_keys[p - 1];
}

/* out [outer, places, inner] += source [outer, n, inner] at places sorted_keys[p], one value after the other. */
template <class Real>
DEVICE void add_to_segments(Real *out, const Real *source, const int64_t *sorted_keys, const int64_t *order,
                            int64_t outer, int64_t n, int64_t inner, int64_t places) {
    EACH(e, outer * n * inner) {
        const int64_t j = e % inner, p = e / inner % n, o = e / inner / n;
        if (!is_first_of_segment(sorted_keys, p)) continue;
        Real *to = out + (o * places + sorted_keys[p]) * inner + j, sum = *to;
        for (int64_t q = p; q < n && sorted_keys[q] == sorted_keys[p]; q++)
            sum = sum + source[(o * n + order[q]) * inner + j];
        *to = sum;
    }
}

/* out [places, width]: class S over the rows of source [n, width] that share a place. Where nothing goes, out stays.
 * A block of 32 x 32 threads for each p and each 32 columns: x is the column, y the lane. */
template <class Real>
DEVICE void sum_segments(Real *out, const Real *source, const int64_t *sorted_keys, const int64_t *order,
                         const int64_t *end, int64_t n, int64_t width) {
    __shared__ Real lanes[WARP][WARP + 1];
    const int64_t groups = (width + WARP - 1) / WARP, p = blockIdx.x / groups;
    const int64_t column = blockIdx.x % groups * WARP + threadIdx.x;
    if (!is_first_of_segment(sorted_keys, p)) return; /* the whole block */
    const int64_t count = end[p] - p;
    sum_tree_t<Real> tree;
    tree.blocks = 0, tree.n = 0;
    for (int64_t first = 0; first < count; first += SUM_BLOCK) {
        const int64_t size = min_int64(count - first, SUM_BLOCK);
        Real lane = reduction_identity<Real>(0);
        if (column < width)
            for (int64_t i = threadIdx.y; i < size; i += WARP)
                lane = lane + source[order[p + first + i] * width + column];
        lanes[threadIdx.y][threadIdx.x] = lane;
        for (int half = WARP / 2; half; half /= 2) {
            __syncthreads();
            if ((int)threadIdx.y < half)
                lanes[threadIdx.y][threadIdx.x] =
                    lanes[threadIdx.y][threadIdx.x] + lanes[threadIdx.y + half][threadIdx.x];
        }
        if (threadIdx.y == 0) add_block_to_sum_tree(&tree, lanes[0][threadIdx.x]);
        __syncthreads();
    }
    if (threadIdx.y == 0 && column < width) out[sorted_keys[p] * width + column] = finish_sum_tree(&tree);
}

#define SEGMENTS(Real, bits)                                                                                      \
    KERNEL add_to_segments##bits(Real *out, const Real *source, const int64_t *sorted_keys, const int64_t *order, \
                                 int64_t outer, int64_t n, int64_t inner, int64_t places) {                       \
        add_to_segments(out, source, sorted_keys, order, outer, n, inner, places);                                \
    }                                                                                                             \
    KERNEL_OF(WARP *WARP)                                                                                         \
    sum_segments##bits(Real *out, const Real *source, const int64_t *sorted_keys, const int64_t *order,           \
                       const int64_t *end, int64_t n, int64_t width) {                                            \
        sum_segments(out, source, sorted_keys, order, end, n, width);                                             \
    }
SEGMENTS(float, 32)
SEGMENTS(double, 64)

/* out[sorted_keys] = the last value of each place; values of any type of that size. */
#define LAST(Word, bytes)                                                                                          \
    KERNEL write_last_of_segments##bytes(Word *out, const Word *source, const int64_t *sorted_keys,                \
                                         const int64_t *order, int64_t n) {                                        \
        EACH(p, n) if (p + 1 == n || sorted_keys[p] != sorted_keys[p + 1]) out[sorted_keys[p]] = source[order[p]]; \
    }
LAST(uint8_t, 1)
LAST(uint16_t, 2)
LAST(uint32_t, 4)
LAST(uint64_t, 8)
