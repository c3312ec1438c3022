/* Class M: products of matrices, and what turns a convolution into one.
 *
 * An element of an operand lies at the sum of two offsets, one of its row and one of its column; an axis gives the
 * offsets by a stride or by a table. A k is never padded: in the last step of a block fewer are taken, because even
 * 0 * 0 would change the sign of a sum that underflowed.
 */
#include "common.h"

enum { K_BLOCK = 256 }; /* an fma chain from +0.0; the blocks are added in ascending order */

typedef struct {
    const int64_t *table; /* or null */
    int64_t stride;
} axis_offsets_t;

typedef struct {
    int64_t batches, m, n, k;
    const void *a, *b;
    void *c;
    axis_offsets_t a_row, a_k, b_k, b_column, c_column;
    int64_t a_batch, b_batch, c_batch, c_row; /* strides */
    const void *bias; /* or null: bias[batch * bias_batch + i * bias_row + j * bias_column] is added at the end */
    int64_t bias_batch, bias_row, bias_column;
    int64_t a_along_k, b_along_k; /* neighbours in memory are neighbours in k */
    int64_t splits;               /* parts of k, each of whole blocks, computed beside each other */
    void *parts;                  /* null with one split; else [blocks of k, batches, m, n] */
} gemm_t;

DEVICE int64_t offset_at(const axis_offsets_t &axis, int64_t index) {
    return axis.table ? axis.table[index] : index * axis.stride;
}

DEVICE float fused_multiply_add(float a, float b, float c) { return fma32(a, b, c); }
DEVICE double fused_multiply_add(double a, double b, double c) { return fma64(a, b, c); }

template <class Real>
DEVICE Real add_bias_if_any(const gemm_t &args, int64_t batch, int64_t i, int64_t j, Real value) {
    if (!args.bias) return value;
    return value + ((const Real *)args.bias)[batch * args.bias_batch + i * args.bias_row + j * args.bias_column];
}

/* A thread block computes M x N results, each of its 256 threads R x S of them. Grid: tiles of m, tiles of n, splits,
 * batches, the first fastest. */
template <class Real, int M, int N, int R, int S, int DEPTH>
DEVICE void gemm_tile(const gemm_t &args) {
    enum { THREADS = (M / R) * (N / S), OF_A = M * DEPTH / THREADS, OF_B = N * DEPTH / THREADS };
    enum { V = R < 4 ? R : 4, W = S < 4 ? S : 4 }; /* results next to each other */
    __shared__ Real a_tile[DEPTH][M + 4], b_tile[DEPTH][N + 4];
    __shared__ int64_t a_at[M], b_at[N], c_at[N];
    const int64_t tiles_m = (args.m + M - 1) / M, tiles_n = (args.n + N - 1) / N;
    int64_t rest = blockIdx.x;
    const int64_t top = rest % tiles_m * M;
    rest /= tiles_m;
    const int64_t left = rest % tiles_n * N;
    rest /= tiles_n;
    const int64_t split = rest % args.splits, batch = rest / args.splits;
    const int64_t blocks = (args.k + K_BLOCK - 1) / K_BLOCK, share = (blocks + args.splits - 1) / args.splits;
    const int64_t last_block = min_int64((split + 1) * share, blocks);
    const Real *a = (const Real *)args.a + batch * args.a_batch;
    const Real *b = (const Real *)args.b + batch * args.b_batch;
    const int tid = threadIdx.x, tx = tid % (N / S), ty = tid / (N / S);
    for (int i = tid; i < M; i += THREADS) a_at[i] = top + i < args.m ? offset_at(args.a_row, top + i) : -1;
    for (int j = tid; j < N; j += THREADS) {
        b_at[j] = left + j < args.n ? offset_at(args.b_column, left + j) : -1;
        c_at[j] = args.parts || left + j >= args.n ? left + j : offset_at(args.c_column, left + j);
    }
    /* What a thread fetches: element (row a_i, k a_d) of the tile of a, and others in steps. */
    const int a_d = args.a_along_k ? tid % DEPTH : tid / M, a_i = args.a_along_k ? tid / DEPTH : tid % M;
    const int b_d = args.b_along_k ? tid % DEPTH : tid / N, b_j = args.b_along_k ? tid / DEPTH : tid % N;
    const int a_d_step = args.a_along_k ? 0 : THREADS / M, a_i_step = args.a_along_k ? THREADS / DEPTH : 0;
    const int b_d_step = args.b_along_k ? 0 : THREADS / N, b_j_step = args.b_along_k ? THREADS / DEPTH : 0;
    const int rows = (int)min_int64(M, args.m - top), columns = (int)min_int64(N, args.n - left);
    Real *const c = (Real *)args.c + batch * args.c_batch + top * args.c_row;
    const int64_t line = args.parts ? args.n : args.c_row;
    __syncthreads();
    for (int64_t block = split * share; block < last_block; block++) {
        const int64_t start = block * K_BLOCK, end = min_int64(start + K_BLOCK, args.k);
        Real sum[R][S], next_a[OF_A], next_b[OF_B];
        for (int i = 0; i < R; i++)
            for (int j = 0; j < S; j++) sum[i][j] = 0;
        for (int64_t k = start - DEPTH; k < end; k += DEPTH) { /* the first round only fetches */
            if (k >= start) {
#pragma unroll
                for (int e = 0; e < OF_A; e++) a_tile[a_d + e * a_d_step][a_i + e * a_i_step] = next_a[e];
#pragma unroll
                for (int e = 0; e < OF_B; e++) b_tile[b_d + e * b_d_step][b_j + e * b_j_step] = next_b[e];
                __syncthreads();
            }
            if (k + DEPTH < end) {
#pragma unroll
                for (int e = 0; e < OF_A; e++) {
                    const int64_t ahead = k + DEPTH + a_d + e * a_d_step;
                    const int i = a_i + e * a_i_step;
                    next_a[e] = ahead < end && i < rows ? a[a_at[i] + offset_at(args.a_k, ahead)] : (Real)0;
                }
#pragma unroll
                for (int e = 0; e < OF_B; e++) {
                    const int64_t ahead = k + DEPTH + b_d + e * b_d_step;
                    const int j = b_j + e * b_j_step;
                    next_b[e] = ahead < end && j < columns ? b[b_at[j] + offset_at(args.b_k, ahead)] : (Real)0;
                }
            }
            if (k < start) continue;
            const auto step = [&](int d) {
                Real from_a[R], from_b[S];
#pragma unroll
                for (int i = 0; i < R; i++) from_a[i] = a_tile[d][i / V * (M * V / R) + ty * V + i % V];
#pragma unroll
                for (int j = 0; j < S; j++) from_b[j] = b_tile[d][j / W * (N * W / S) + tx * W + j % W];
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int j = 0; j < S; j++) sum[i][j] = fused_multiply_add(from_a[i], from_b[j], sum[i][j]);
            };
            if (end - k >= DEPTH) {
#pragma unroll
                for (int d = 0; d < DEPTH; d++) step(d);
            } else {
                for (int d = 0; d < (int)(end - k); d++) step(d);
            }
            __syncthreads();
        }
        /* Between blocks the running sum lies in the result: a thread reads back what it wrote itself. */
        Real *const to = args.parts ? (Real *)args.parts + ((block * args.batches + batch) * args.m + top) * args.n : c;
        const int add = !args.parts && block > 0;
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < S; j++) {
                const int row = i / V * (M * V / R) + ty * V + i % V, column = j / W * (N * W / S) + tx * W + j % W;
                if (row >= rows || column >= columns) continue;
                Real *const cell = to + row * line + c_at[column];
                *cell = add ? *cell + sum[i][j] : sum[i][j];
            }
    }
    if (args.parts || !args.bias) return;
    for (int e = 0; e < R * S; e++) {
        const int i = e / S, j = e % S;
        const int row = i / V * (M * V / R) + ty * V + i % V, column = j / W * (N * W / S) + tx * W + j % W;
        if (row >= rows || column >= columns) continue;
        Real *const cell = c + row * line + c_at[column];
        *cell = add_bias_if_any(args, batch, top + row, left + column, *cell);
    }
}

/* The sums of the blocks of k, one after the other; nothing sums to +0.0. */
template <class Real>
DEVICE void sum_split_k_parts(const gemm_t &args) {
    const int64_t blocks = (args.k + K_BLOCK - 1) / K_BLOCK, size = args.batches * args.m * args.n;
    EACH(e, size) {
        Real sum = blocks ? ((const Real *)args.parts)[e] : (Real)0;
        for (int64_t block = 1; block < blocks; block++) sum = sum + ((const Real *)args.parts)[block * size + e];
        const int64_t batch = e / args.n / args.m, i = e / args.n % args.m, j = e % args.n;
        ((Real *)args.c)[batch * args.c_batch + i * args.c_row + offset_at(args.c_column, j)] =
            add_bias_if_any(args, batch, i, j, sum);
    }
}

KERNEL gemm_large32(gemm_t args) { gemm_tile<float, 128, 128, 8, 8, 8>(args); }
KERNEL gemm_small32(gemm_t args) { gemm_tile<float, 32, 32, 2, 2, 16>(args); }
KERNEL gemm_large64(gemm_t args) { gemm_tile<double, 64, 64, 4, 4, 8>(args); }
KERNEL gemm_small64(gemm_t args) { gemm_tile<double, 32, 32, 2, 2, 16>(args); }
KERNEL sum_split_k_parts32(gemm_t args) { sum_split_k_parts<float>(args); }
KERNEL sum_split_k_parts64(gemm_t args) { sum_split_k_parts<double>(args); }

typedef struct {
    int64_t in[3], size[3], step[3], left[3]; /* value i of a dimension goes to left + i * step, if inside size */
} padding_t;

/* The copy of an image with its padding (and with zeros between the values of a strided gradient). */
template <class Real>
DEVICE void pad_image(const Real *src, Real *dst, int64_t channels, const padding_t &args) {
    const int64_t volume = args.size[0] * args.size[1] * args.size[2];
    EACH(e, channels * volume) {
        int64_t rest = e % volume, at[3], source = e / volume, inside = 1;
        for (int d = 2; d >= 0; d--) {
            at[d] = rest % args.size[d] - args.left[d];
            rest /= args.size[d];
        }
        for (int d = 0; d < 3; d++) {
            inside &= at[d] >= 0 && at[d] % args.step[d] == 0 && at[d] / args.step[d] < args.in[d];
            source = source * args.in[d] + at[d] / args.step[d];
        }
        dst[e] = inside ? src[source] : (Real)0;
    }
}
KERNEL pad_image32(const float *src, float *dst, int64_t channels, padding_t args) {
    pad_image(src, dst, channels, args);
}
KERNEL pad_image64(const double *src, double *dst, int64_t channels, padding_t args) {
    pad_image(src, dst, channels, args);
}

typedef struct {
    int64_t start, outer_stride, inner[3], step[3], size[3];
} grid_t;

/* Offsets of outer * volume(inner) entries: outer * outer_stride + each position of `inner` times its steps. */
KERNEL fill_grid_offsets(int64_t *offsets, int64_t n, grid_t args) {
    EACH(e, n) {
        const int64_t w = e % args.inner[2], h = e / args.inner[2] % args.inner[1],
                      d = e / args.inner[2] / args.inner[1] % args.inner[0];
        const int64_t outer = e / args.inner[2] / args.inner[1] / args.inner[0];
        offsets[e] = args.start + outer * args.outer_stride +
                     ((d * args.step[0]) * args.size[1] + h * args.step[1]) * args.size[2] + w * args.step[2];
    }
}
