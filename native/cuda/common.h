/* What the kernels for CUDA share. They are compiled while a program runs, by NVRTC; and, for the tests, as C++ for
 * the CPU (tests/cuda/emulation.h).
 *
 * The order of operations is that of the specification, as everywhere: threads only share out what is independent.
 */
#ifndef SAMERUN_CUDA_COMMON_H
#define SAMERUN_CUDA_COMMON_H

#include "../portable.h"

/* The most threads of a block of a kernel: the compiler then keeps to the registers that so many can have. Without it,
 * a kernel for 1024 threads that took 65 registers would be refused when it is started, on some devices alone. */
#define KERNEL_OF(most_threads) extern "C" __global__ void __launch_bounds__(most_threads)
#define KERNEL KERNEL_OF(256)
#define DEVICE static __device__ __forceinline__

enum { WARP = SUM_LANES, MOST_WARPS = 8, MOST_LEVELS = 64 };

/* A loop of the whole grid over 0 <= i < n. */
#define EACH(i, n) \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

DEVICE int64_t min_int64(int64_t a, int64_t b) { return a < b ? a : b; }

/* One type for each: the value that is absent from a sum, and that from a product. */
template <class Real>
DEVICE Real reduction_identity(int is_product) {
    return is_product ? (Real)1 : (Real)-0.0;
}

template <class Real>
DEVICE Real add_or_multiply(int is_product, Real a, Real b) {
    return is_product ? a * b : a + b;
}

/* The 32 lanes of a block of a sum to one, which lane 0 has: lane l += lane l+16, then +8, +4, +2, +1. */
template <class Real>
DEVICE Real reduce_warp_to_lane_0(int is_product, Real value) {
    for (int half = WARP / 2; half; half /= 2)
        value = add_or_multiply(is_product, value, __shfl_down_sync(0xFFFFFFFFu, value, half));
    return value;
}

/* The sum of a block of n <= SUM_BLOCK terms, by one warp; lane 0 has it. `term` is a function of the index. */
template <class Real, class Term>
DEVICE Real reduce_block_to_lane_0(int is_product, int64_t n, Term term) {
    Real lane = reduction_identity<Real>(is_product);
#pragma unroll 4
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) lane = add_or_multiply(is_product, lane, (Real)term(i));
    return reduce_warp_to_lane_0(is_product, lane);
}

/* The sums of blocks as they come, to the tree of class S: like a binary counter. */
template <class Real>
struct sum_tree_t {
    Real sum[MOST_LEVELS];
    int64_t blocks;
    int n;
};

template <class Real>
DEVICE void add_block_to_sum_tree(sum_tree_t<Real> *tree, Real sum) {
    tree->sum[tree->n++] = sum;
    for (int64_t carry = ++tree->blocks; !(carry & 1); carry >>= 1, tree->n--)
        tree->sum[tree->n - 2] = tree->sum[tree->n - 2] + tree->sum[tree->n - 1];
}

template <class Real>
DEVICE Real finish_sum_tree(sum_tree_t<Real> *tree) {
    for (; tree->n > 1; tree->n--) tree->sum[tree->n - 2] = tree->sum[tree->n - 2] + tree->sum[tree->n - 1];
    return tree->n ? tree->sum[0] : (Real)0;
}

/* The class S sum of n terms, by all threads of a block of at most MOST_WARPS warps; every thread gets it. Each warp
 * takes a block of the sum, and the first thread keeps the tree. */
template <class Term>
DEVICE float sum_row_by_thread_block(int64_t n, Term term) {
    __shared__ float part[MOST_WARPS];
    __shared__ float total;
    const int warps = blockDim.x / WARP, warp = threadIdx.x / WARP;
    sum_tree_t<float> tree;
    tree.blocks = 0, tree.n = 0;
    for (int64_t first = 0; first < n; first += (int64_t)warps * SUM_BLOCK) {
        const int64_t mine = first + (int64_t)warp * SUM_BLOCK;
        if (mine < n) {
            const float sum = reduce_block_to_lane_0<float>(0, min_int64(n - mine, SUM_BLOCK),
                                                            [&](int64_t i) { return term(mine + i); });
            if (threadIdx.x % WARP == 0) part[warp] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (int w = 0; w < warps && first + (int64_t)w * SUM_BLOCK < n; w++) add_block_to_sum_tree(&tree, part[w]);
        __syncthreads();
    }
    if (threadIdx.x == 0) total = finish_sum_tree(&tree);
    __syncthreads();
    const float found = total;
    __syncthreads();
    return found;
}

#endif
