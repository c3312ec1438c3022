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
} axis_t;

typedef struct {
    int64_t batches, m, n, k;
    const void *a, *b;
    void *c;
    axis_t a_row, a_k, b_k, b_column, c_column;
    int64_t a_batch, b_batch, c_batch, c_row; /* strides */
    const void *bias; /* or null: bias[batch * bias_batch + i * bias_row + j * bias_column] is added at the end */
    int64_t bias_batch, bias_row, bias_column;
    int64_t a_along_k, b_along_k; /* neighbours in memory are neighbours in k */
    int64_t splits;               /* parts of k, each of whole blocks, computed beside each other */
    void *parts;                  /* null with one split; else [blocks of k, batches, m, n] */
} product_t;

DEVICE int64_t offset_at(const axis_t &axis, int64_t i) { return axis.table ? axis.table[i] : i * axis.stride; }

DEVICE float fma_of(float a, float b, float c) { return fma32(a, b, c); }
DEVICE double fma_of(double a, double b, double c) { return fma64(a, b, c); }

template <class Real>
DEVICE Real biased(const product_t &it, int64_t batch, int64_t i, int64_t j, Real value) {
    if (!it.bias) return value;
    return value + ((const Real *)it.bias)[batch * it.bias_batch + i * it.bias_row + j * it.bias_column];
}

/* A thread block computes M x N results, each of its 256 threads R x S of them. Grid: tiles of m, tiles of n, splits,
 * batches, the first fastest. */
template <class Real, int M, int N, int R, int S, int DEPTH>
DEVICE void product_tile(const product_t &it) {
    enum { THREADS = (M / R) * (N / S), OF_A = M * DEPTH / THREADS, OF_B = N * DEPTH / THREADS };
    enum { V = R < 4 ? R : 4, W = S < 4 ? S : 4 }; /* results next to each other */
    __shared__ Real a_tile[DEPTH][M + 4], b_tile[DEPTH][N + 4];
    __shared__ int64_t a_at[M], b_at[N], c_at[N];
    const int64_t tiles_m = (it.m + M - 1) / M, tiles_n = (it.n + N - 1) / N;
    int64_t rest = blockIdx.x;
    const int64_t top = rest % tiles_m * M;
    rest /= tiles_m;
    const int64_t left = rest % tiles_n * N;
    rest /= tiles_n;
    const int64_t split = rest % it.splits, batch = rest / it.splits;
    const int64_t blocks = (it.k + K_BLOCK - 1) / K_BLOCK, share = (blocks + it.splits - 1) / it.splits;
    const int64_t last_block = least((split + 1) * share, blocks);
    const Real *a = (const Real *)it.a + batch * it.a_batch;
    const Real *b = (const Real *)it.b + batch * it.b_batch;
    const int tid = threadIdx.x, tx = tid % (N / S), ty = tid / (N / S);
    for (int i = tid; i < M; i += THREADS) a_at[i] = top + i < it.m ? offset_at(it.a_row, top + i) : -1;
    for (int j = tid; j < N; j += THREADS) {
        b_at[j] = left + j < it.n ? offset_at(it.b_column, left + j) : -1;
        c_at[j] = it.parts || left + j >= it.n ? left + j : offset_at(it.c_column, left + j);
    }
    /* What a thread fetches: element (row a_i, k a_d) of the tile of a, and others in steps. */
    const int a_d = it.a_along_k ? tid % DEPTH : tid / M, a_i = it.a_along_k ? tid / DEPTH : tid % M;
    const int b_d = it.b_along_k ? tid % DEPTH : tid / N, b_j = it.b_along_k ? tid / DEPTH : tid % N;
    const int a_d_step = it.a_along_k ? 0 : THREADS / M, a_i_step = it.a_along_k ? THREADS / DEPTH : 0;
    const int b_d_step = it.b_along_k ? 0 : THREADS / N, b_j_step = it.b_along_k ? THREADS / DEPTH : 0;
    const int rows = (int)least(M, it.m - top), columns = (int)least(N, it.n - left);
    Real *const c = (Real *)it.c + batch * it.c_batch + top * it.c_row;
    const int64_t line = it.parts ? it.n : it.c_row;
    __syncthreads();
    for (int64_t block = split * share; block < last_block; block++) {
        const int64_t start = block * K_BLOCK, end = least(start + K_BLOCK, it.k);
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
                    next_a[e] = ahead < end && i < rows ? a[a_at[i] + offset_at(it.a_k, ahead)] : (Real)0;
                }
#pragma unroll
                for (int e = 0; e < OF_B; e++) {
                    const int64_t ahead = k + DEPTH + b_d + e * b_d_step;
                    const int j = b_j + e * b_j_step;
                    next_b[e] = ahead < end && j < columns ? b[b_at[j] + offset_at(it.b_k, ahead)] : (Real)0;
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
                    for (int j = 0; j < S; j++) sum[i][j] = fma_of(from_a[i], from_b[j], sum[i][j]);
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
        Real *const to = it.parts ? (Real *)it.parts + ((block * it.batches + batch) * it.m + top) * it.n : c;
        const int add = !it.parts && block > 0;
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
    if (it.parts || !it.bias) return;
    for (int e = 0; e < R * S; e++) {
        const int i = e / S, j = e % S;
        const int row = i / V * (M * V / R) + ty * V + i % V, column = j / W * (N * W / S) + tx * W + j % W;
        if (row >= rows || column >= columns) continue;
        Real *const cell = c + row * line + c_at[column];
        *cell = biased(it, batch, top + row, left + column, *cell);
    }
}

/* The sums of the blocks of k, one after the other; nothing sums to +0.0. */
template <class Real>
DEVICE void product_parts(const product_t &it) {
    const int64_t blocks = (it.k + K_BLOCK - 1) / K_BLOCK, size = it.batches * it.m * it.n;
    EACH(e, size) {
        Real sum = blocks ? ((const Real *)it.parts)[e] : (Real)0;
        for (int64_t block = 1; block < blocks; block++) sum = sum + ((const Real *)it.parts)[block * size + e];
        const int64_t batch = e / it.n / it.m, i = e / it.n % it.m, j = e % it.n;
        ((Real *)it.c)[batch * it.c_batch + i * it.c_row + offset_at(it.c_column, j)] = biased(it, batch, i, j, sum);
    }
}

KERNEL product_large32(product_t it) { product_tile<float, 128, 128, 8, 8, 8>(it); }
KERNEL product_small32(product_t it) { product_tile<float, 32, 32, 2, 2, 16>(it); }
KERNEL product_large64(product_t it) { product_tile<double, 64, 64, 4, 4, 8>(it); }
KERNEL product_small64(product_t it) { product_tile<double, 32, 32, 2, 2, 16>(it); }
KERNEL product_parts32(product_t it) { product_parts<float>(it); }
KERNEL product_parts64(product_t it) { product_parts<double>(it); }

typedef struct {
    int64_t in[3], size[3], step[3], left[3]; /* value i of a dimension goes to left + i * step, if inside size */
} spread_t;

/* The copy of an image with its padding (and with zeros between the values of a strided gradient). */
template <class Real>
DEVICE void spread(const Real *from, Real *to, int64_t channels, const spread_t &it) {
    const int64_t volume = it.size[0] * it.size[1] * it.size[2];
    EACH(e, channels * volume) {
        int64_t rest = e % volume, at[3], source = e / volume, inside = 1;
        for (int d = 2; d >= 0; d--) {
            at[d] = rest % it.size[d] - it.left[d];
            rest /= it.size[d];
        }
        for (int d = 0; d < 3; d++) {
            inside &= at[d] >= 0 && at[d] % it.step[d] == 0 && at[d] / it.step[d] < it.in[d];
            source = source * it.in[d] + at[d] / it.step[d];
        }
        to[e] = inside ? from[source] : (Real)0;
    }
}
KERNEL spread32(const float *from, float *to, int64_t channels, spread_t it) { spread(from, to, channels, it); }
KERNEL spread64(const double *from, double *to, int64_t channels, spread_t it) { spread(from, to, channels, it); }

typedef struct {
    int64_t start, outer_stride, inner[3], step[3], size[3];
} grid_t;

/* Offsets of outer * volume(inner) entries: outer * outer_stride + each position of `inner` times its steps. */
KERNEL offsets(int64_t *to, int64_t n, grid_t it) {
    EACH(e, n) {
        const int64_t w = e % it.inner[2], h = e / it.inner[2] % it.inner[1],
                      d = e / it.inner[2] / it.inner[1] % it.inner[0];
        const int64_t outer = e / it.inner[2] / it.inner[1] / it.inner[0];
        to[e] = it.start + outer * it.outer_stride + ((d * it.step[0]) * it.size[1] + h * it.step[1]) * it.size[2] +
                w * it.step[2];
    }
}
