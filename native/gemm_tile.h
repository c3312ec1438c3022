/* The tile and the packing of one instruction set and one type. Included with these defined: REAL, VECTOR, LANES, ROWS,
 * TARGET, NAME(x), LOAD, STORE, SPLAT, FMA, ADD, ZERO, FEW_ROWS_KERNEL (or NULL) and, where there is one, TURN(dst,
 * stride, src, offsets): TRANSPOSE_DEEP consecutive k's of TRANSPOSE_WIDE rows, turned.
 */

enum { NAME(COLUMNS) = 3 * LANES };

/* Rows or columns: packed (across and k are NULL), or number k of the i-th is at data + across[i] + k[k]. Of columns
 * the i-th vector. */
typedef struct {
    const REAL *data;
    const int64_t *across, *k;
} NAME(operand);

/* Accumulators stay in registers: rows and vectors are constants in every use below, and so is what of the sides is
 * NULL. `prefetch_offsets`: NULL, or where among b's columns those lie that will be met soon. */
static inline __attribute__((always_inline)) TARGET void NAME(multiply_register_tile)(
    int64_t depth, NAME(operand) a, NAME(operand) b, const int64_t *prefetch_offsets, REAL *c, int64_t c_stride,
    int overwrite, const int rows, const int vectors) {
    VECTOR sum[ROWS][3];
    const REAL *from[ROWS];
    /* The result is met once in a block of k and has left the near caches since: ask for it now. */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        from[i] = a.data + (a.across ? a.across[i] : i);
        __builtin_prefetch(c + i * c_stride, 1);
        __builtin_prefetch(c + i * c_stride + vectors * LANES - 1, 1);
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[i][v] = ZERO;
    }
    for (int64_t k = 0; k < depth; k++) {
        const REAL *line = b.data + (b.k ? b.k[k] : k * NAME(COLUMNS));
        VECTOR right[3];
        if (prefetch_offsets)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) __builtin_prefetch(line + prefetch_offsets[v], 0, 2);
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) right[v] = LOAD(line + (b.across ? b.across[v] : v * LANES));
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            VECTOR left = SPLAT(from[i][a.k ? a.k[k] : k * ROWS]);
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) sum[i][v] = FMA(left, right[v], sum[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            REAL *to = c + i * c_stride + v * LANES;
            STORE(to, overwrite ? sum[i][v] : ADD(LOAD(to), sum[i][v]));
        }
}

#define CASES(vectors)                                                                                           \
    switch (rows) {                                                                                              \
    case 1: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 1, vectors); \
        break;                                                                                                   \
    case 2: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 2, vectors); \
        break;                                                                                                   \
    case 3: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 3, vectors); \
        break;                                                                                                   \
    case 4:                                                                                                      \
        NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 4, vectors);     \
        break;                                                                                                   \
        MORE(vectors)                                                                                            \
    }
#if ROWS == 8
#define MORE(vectors)                                                                                            \
    case 5: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 5, vectors); \
        break;                                                                                                   \
    case 6: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 6, vectors); \
        break;                                                                                                   \
    case 7: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 7, vectors); \
        break;                                                                                                   \
    default: NAME(multiply_register_tile)(depth, a, b, prefetch_offsets, to, stride, overwrite_tile, 8, vectors); break;
#else
#define MORE(vectors) \
    default: break;
#endif

static inline __attribute__((always_inline))
TARGET void NAME(multiply_tile_any_width)(int64_t depth, NAME(operand) a, NAME(operand) b, void *result,
                                          int64_t c_stride, int rows, int columns, int overwrite) {
    const int64_t *const prefetch_offsets = NULL;
    REAL *c = result, edge[ROWS * NAME(COLUMNS)];
    int vectors = (columns + LANES - 1) / LANES, whole = vectors * LANES == columns;
    REAL *to = whole ? c : edge;
    int64_t stride = whole ? c_stride : NAME(COLUMNS);
    int overwrite_tile = whole ? overwrite : 1;
    if (vectors == 3) {
        CASES(3)
    } else if (vectors == 2) {
        CASES(2)
    } else {
        CASES(1)
    }
    if (whole) return;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            REAL *place = c + i * c_stride + j, part = edge[i * NAME(COLUMNS) + j];
            *place = overwrite ? part : *place + part;
        }
}

static TARGET void NAME(multiply_packed_tile)(int64_t depth, const void *a, const void *b, void *c, int64_t c_stride,
                                              int rows, int columns, int overwrite) {
    NAME(multiply_tile_any_width)(depth, (NAME(operand)){a, NULL, NULL}, (NAME(operand)){b, NULL, NULL}, c, c_stride,
                                  rows, columns, overwrite);
}

static TARGET void NAME(multiply_tile_unpacked_rows)(int64_t depth, const void *a, const int64_t *row_offsets,
                                                     const int64_t *k_offsets, const void *b, void *c, int64_t c_stride,
                                                     int rows, int columns, int overwrite) {
    NAME(multiply_tile_any_width)(depth, (NAME(operand)){a, row_offsets, k_offsets}, (NAME(operand)){b, NULL, NULL}, c,
                                  c_stride, rows, columns, overwrite);
}

static TARGET void NAME(multiply_tile_unpacked_columns)(int64_t depth, const void *left, const void *right,
                                                        const int64_t *k_offsets, const int64_t *vector_offsets,
                                                        const int64_t *prefetch_offsets, void *to, int64_t stride,
                                                        int rows, int overwrite_tile) {
    const NAME(operand) a = {left, NULL, NULL}, b = {right, vector_offsets, k_offsets};
    if (prefetch_offsets != NULL) {
        CASES(3)
    } else {
        const int64_t *const prefetch_offsets = NULL; /* compiled once more, without */
        CASES(3)
    }
}
#undef CASES
#undef MORE

static inline __attribute__((always_inline))
TARGET void NAME(pack_vectors)(REAL *dst, const REAL *base, const int *dst_offsets, const int64_t *src_offsets,
                               const int vectors, const int64_t *k, int64_t depth, int count, int zero_until,
                               const int width) {
    for (int64_t d = 0; d < depth; d++) {
        REAL *to = dst + d * width;
        const REAL *from = base + k[d];
        for (int v = 0; v < vectors; v++) STORE(to + dst_offsets[v], LOAD(from + src_offsets[v]));
        for (int r = count; r < zero_until; r++) to[r] = 0;
    }
}

/* Rows that lie one behind the other: whole vectors are moved. A run that ends inside a vector is overwritten
 * by what follows it, in ascending order. */
static inline __attribute__((always_inline)) TARGET void NAME(pack_contiguous)(
    REAL *dst, const REAL *base, const int64_t *across, const int32_t *run, int64_t count, const int64_t *k,
    int64_t depth, int may_overread, int zero_until, const int width) {
    if (count == width && run[0] >= width) {
        for (int64_t d = 0; d < depth; d++) {
            const REAL *src = base + across[0] + k[d];
            if (width % LANES == 0)
#pragma GCC unroll 3
                for (int r = 0; r < width; r += LANES) STORE(dst + d * width + r, LOAD(src + r));
            else
#pragma GCC unroll 8
                for (int r = 0; r < width; r++) dst[d * width + r] = src[r];
        }
        return;
    }
    if (may_overread && width % LANES == 0) {
        int place[NAME(COLUMNS)], vectors = 0;
        int64_t source[NAME(COLUMNS)];
        for (int64_t r = 0; r < count; r += run[r] < count - r ? run[r] : count - r)
            for (int64_t q = 0; q < run[r] && r + q < count && vectors < NAME(COLUMNS); q += LANES) {
                place[vectors] = (int)(r + q);
                source[vectors++] = across[r] + q;
            }
        if (vectors == 3) NAME(pack_vectors)(dst, base, place, source, 3, k, depth, (int)count, zero_until, width);
        else if (vectors == 4 && NAME(COLUMNS) > 4)
            NAME(pack_vectors)(dst, base, place, source, NAME(COLUMNS) > 4 ? 4 : 3, k, depth, (int)count, zero_until,
                               width);
        else NAME(pack_vectors)(dst, base, place, source, vectors, k, depth, (int)count, zero_until, width);
        return;
    }
    for (int64_t d = 0; d < depth; d++) {
        REAL *to = dst + d * width;
        const REAL *from = base + k[d];
        for (int64_t r = 0; r < count;) {
            int64_t length = run[r] < count - r ? run[r] : count - r;
            const REAL *src = from + across[r];
            for (int64_t q = 0; q < length; q++) to[r + q] = src[q];
            r += length;
        }
        for (int64_t r = count; r < zero_until; r++) to[r] = 0;
    }
}

static inline __attribute__((always_inline)) TARGET void NAME(pack_transposed)(REAL *dst, const REAL *base,
                                                                               const int64_t *across, int64_t count,
                                                                               const int64_t *k, const int32_t *run,
                                                                               int64_t depth, int may_overread,
                                                                               int zero_until, const int width) {
    int64_t done = 0;
    for (int64_t d = 0; d < depth; d += done) {
        done = 1;
        int64_t r = 0;
#ifdef TRANSPOSE
        /* What is turned beyond the end of a run is overwritten by what follows. */
        if (run[d] >= (may_overread ? TRANSPOSE_DEEP / 4 + 1 : TRANSPOSE_DEEP) && depth - d >= TRANSPOSE_DEEP &&
            count >= TRANSPOSE_WIDE) {
            done = run[d] < TRANSPOSE_DEEP ? run[d] : TRANSPOSE_DEEP;
            for (; r + TRANSPOSE_WIDE <= count; r += TRANSPOSE_WIDE)
                TRANSPOSE(dst + d * width + r, width, base + k[d], across + r);
        }
#else
        (void)run, (void)may_overread;
#endif
        for (int64_t q = 0; q < done; q++) {
            REAL *to = dst + (d + q) * width;
            const REAL *from = base + k[d + q];
            for (int64_t s = r; s < count; s++) to[s] = from[across[s]];
            for (int64_t s = count; s < zero_until; s++) to[s] = 0;
        }
    }
}

/* What is left of a vector is filled with zeros. */
#define PACK(name, width)                                                                                              \
    static TARGET void NAME(name)(void *dst, const void *base, const samerun_offset_table *across, int64_t first_row,  \
                                  int64_t count, const samerun_offset_table *k, int64_t k_begin, int64_t depth,        \
                                  int may_overread) {                                                                  \
        const int64_t first_run = across->run[first_row] < count ? across->run[first_row] : count;                     \
        const int zero_until = width % LANES ? width : (int)((count + LANES - 1) / LANES * LANES);                     \
        if (count > 1 && (first_run == count || (first_run >= 4 && first_run >= k->run[k_begin])))                     \
            NAME(pack_contiguous)(dst, base, across->offset + first_row, across->run + first_row, count,               \
                                  k->offset + k_begin, depth, may_overread, zero_until, width);                        \
        else                                                                                                           \
            NAME(pack_transposed)(dst, base, across->offset + first_row, count, k->offset + k_begin, k->run + k_begin, \
                                  depth, may_overread, zero_until, width);                                             \
    }
PACK(pack_rows, ROWS)
PACK(pack_columns, NAME(COLUMNS))
#undef PACK

const samerun_gemm_kernels NAME(kernels) = {ROWS,
                                            NAME(COLUMNS),
                                            NAME(pack_rows),
                                            NAME(pack_columns),
                                            NAME(multiply_packed_tile),
                                            NAME(multiply_tile_unpacked_columns),
                                            NAME(multiply_tile_unpacked_rows),
                                            FEW_ROWS_KERNEL};

#undef FEW_ROWS_KERNEL
#undef REAL
#undef VECTOR
#undef LANES
#undef ROWS
#undef TARGET
#undef NAME
#undef LOAD
#undef STORE
#undef SPLAT
#undef FMA
#undef ADD
#undef ZERO
#undef TRANSPOSE
#undef TRANSPOSE_WIDE
#undef TRANSPOSE_DEEP
