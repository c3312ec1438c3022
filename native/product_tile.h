/* The tile and the packing of one instruction set and one type. Included with these defined:
 * REAL, VECTOR, LANES, ROWS, TARGET, NAME(x), LOAD, STORE, SPLAT, FMA, ADD, ZERO, THIN (or NULL) and, where there is one,
 * TURN(dst, stride, src, offsets): TRANSPOSE_DEEP consecutive k's of TRANSPOSE_WIDE rows, turned.
 */

enum { NAME(COLUMNS) = 3 * LANES };

/* Rows or columns: packed (across and k are NULL), or number k of the i-th is at data + across[i] + k[k]. Of columns the
 * i-th vector. */
typedef struct {
    const REAL *data;
    const int64_t *across, *k;
} NAME(operand);

/* Accumulators stay in registers: rows and vectors are constants in every use below, and so is what of the sides is NULL.
 * `next`: NULL, or where among b's columns those lie that will be met soon. */
static inline __attribute__((always_inline)) TARGET void NAME(accumulate_tile)(int64_t depth, NAME(operand) a,
                                                                               NAME(operand) b, const int64_t *next,
                                                                               REAL *c, int64_t c_stride, int first,
                                                                               const int rows, const int vectors) {
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
        if (next)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) __builtin_prefetch(line + next[v], 0, 2);
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
            STORE(to, first ? sum[i][v] : ADD(LOAD(to), sum[i][v]));
        }
}

#define CASES(vectors)                                                                      \
    switch (rows) {                                                                         \
    case 1: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 1, vectors); break; \
    case 2: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 2, vectors); break; \
    case 3: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 3, vectors); break; \
    case 4:                                                                                 \
        NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 4, vectors);            \
        break;                                                                              \
        MORE(vectors)                                                                       \
    }
#if ROWS == 8
#define MORE(vectors)                                                                       \
    case 5: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 5, vectors); break; \
    case 6: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 6, vectors); break; \
    case 7: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 7, vectors); break; \
    default: NAME(accumulate_tile)(depth, a, b, next, to, stride, begin, 8, vectors); break;
#else
#define MORE(vectors) \
    default: break;
#endif

static inline __attribute__((always_inline))
TARGET void NAME(tile_of_any_width)(int64_t depth, NAME(operand) a, NAME(operand) b, void *result, int64_t c_stride,
                                    int rows, int columns, int first) {
    const int64_t *const next = NULL;
    REAL *c = result, edge[ROWS * NAME(COLUMNS)];
    int vectors = (columns + LANES - 1) / LANES, whole = vectors * LANES == columns;
    REAL *to = whole ? c : edge;
    int64_t stride = whole ? c_stride : NAME(COLUMNS);
    int begin = whole ? first : 1;
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
            *place = first ? part : *place + part;
        }
}

static TARGET void NAME(tile)(int64_t depth, const void *a, const void *b, void *c, int64_t c_stride, int rows,
                              int columns, int first) {
    NAME(tile_of_any_width)(depth, (NAME(operand)){a, NULL, NULL}, (NAME(operand)){b, NULL, NULL}, c, c_stride, rows,
                            columns, first);
}

static TARGET void NAME(tile_of_unpacked_rows)(int64_t depth, const void *a, const int64_t *places,
                                               const int64_t *steps, const void *b, void *c, int64_t c_stride, int rows,
                                               int columns, int first) {
    NAME(tile_of_any_width)(depth, (NAME(operand)){a, places, steps}, (NAME(operand)){b, NULL, NULL}, c, c_stride, rows,
                            columns, first);
}

static TARGET void NAME(tile_of_unpacked_columns)(int64_t depth, const void *left, const void *right, const int64_t *k,
                                                  const int64_t *at, const int64_t *next, void *to, int64_t stride,
                                                  int rows, int begin) {
    const NAME(operand) a = {left, NULL, NULL}, b = {right, at, k};
    if (next != NULL) {
        CASES(3)
    } else {
        const int64_t *const next = NULL; /* compiled once more, without */
        CASES(3)
    }
}
#undef CASES
#undef MORE

static inline __attribute__((always_inline))
TARGET void NAME(pack_vectors)(REAL *dst, const REAL *base, const int *place, const int64_t *source, const int vectors,
                               const int64_t *k, int64_t depth, int count, int filled, const int width) {
    for (int64_t d = 0; d < depth; d++) {
        REAL *to = dst + d * width;
        const REAL *from = base + k[d];
        for (int v = 0; v < vectors; v++) STORE(to + place[v], LOAD(from + source[v]));
        for (int r = count; r < filled; r++) to[r] = 0;
    }
}

/* Rows that lie one behind the other: whole vectors are moved. A run that ends inside a vector is overwritten
 * by what follows it, in ascending order. */
static inline __attribute__((always_inline)) TARGET void NAME(pack_contiguous)(REAL *dst, const REAL *base,
                                                                               const int64_t *across,
                                                                               const int32_t *run, int64_t count,
                                                                               const int64_t *k, int64_t depth,
                                                                               int slack, int filled, const int width) {
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
    if (slack && width % LANES == 0) {
        int place[NAME(COLUMNS)], vectors = 0;
        int64_t source[NAME(COLUMNS)];
        for (int64_t r = 0; r < count; r += run[r] < count - r ? run[r] : count - r)
            for (int64_t q = 0; q < run[r] && r + q < count && vectors < NAME(COLUMNS); q += LANES) {
                place[vectors] = (int)(r + q);
                source[vectors++] = across[r] + q;
            }
        if (vectors == 3) NAME(pack_vectors)(dst, base, place, source, 3, k, depth, (int)count, filled, width);
        else if (vectors == 4 && NAME(COLUMNS) > 4)
            NAME(pack_vectors)(dst, base, place, source, NAME(COLUMNS) > 4 ? 4 : 3, k, depth, (int)count, filled,
                               width);
        else NAME(pack_vectors)(dst, base, place, source, vectors, k, depth, (int)count, filled, width);
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
        for (int64_t r = count; r < filled; r++) to[r] = 0;
    }
}

static inline __attribute__((always_inline)) TARGET void NAME(pack_transposed)(REAL *dst, const REAL *base,
                                                                               const int64_t *across, int64_t count,
                                                                               const int64_t *k, const int32_t *run,
                                                                               int64_t depth, int slack, int filled,
                                                                               const int width) {
    int64_t done = 0;
    for (int64_t d = 0; d < depth; d += done) {
        done = 1;
        int64_t r = 0;
#ifdef TRANSPOSE
        /* What is turned beyond the end of a run is overwritten by what follows. */
        if (run[d] >= (slack ? TRANSPOSE_DEEP / 4 + 1 : TRANSPOSE_DEEP) && depth - d >= TRANSPOSE_DEEP &&
            count >= TRANSPOSE_WIDE) {
            done = run[d] < TRANSPOSE_DEEP ? run[d] : TRANSPOSE_DEEP;
            for (; r + TRANSPOSE_WIDE <= count; r += TRANSPOSE_WIDE)
                TRANSPOSE(dst + d * width + r, width, base + k[d], across + r);
        }
#else
        (void)run, (void)slack;
#endif
        for (int64_t q = 0; q < done; q++) {
            REAL *to = dst + (d + q) * width;
            const REAL *from = base + k[d + q];
            for (int64_t s = r; s < count; s++) to[s] = from[across[s]];
            for (int64_t s = count; s < filled; s++) to[s] = 0;
        }
    }
}

/* What is left of a vector is filled with zeros. */
#define PACK(name, width)                                                                                              \
    static TARGET void NAME(name)(void *dst, const void *base, const samerun_offset_table *across, int64_t from,       \
                                  int64_t count, const samerun_offset_table *k, int64_t k_from, int64_t depth,         \
                                  int slack) {                                                                         \
        const int64_t first = across->run[from] < count ? across->run[from] : count;                                   \
        const int filled = width % LANES ? width : (int)((count + LANES - 1) / LANES * LANES);                         \
        if (count > 1 && (first == count || (first >= 4 && first >= k->run[k_from])))                                  \
            NAME(pack_contiguous)(dst, base, across->offset + from, across->run + from, count, k->offset + k_from,     \
                                  depth, slack, filled, width);                                                        \
        else                                                                                                           \
            NAME(pack_transposed)(dst, base, across->offset + from, count, k->offset + k_from, k->run + k_from, depth, \
                                  slack, filled, width);                                                               \
    }
PACK(pack_rows, ROWS)
PACK(pack_columns, NAME(COLUMNS))
#undef PACK

const samerun_product_kernels NAME(kernels) = {ROWS,
                                               NAME(COLUMNS),
                                               NAME(pack_rows),
                                               NAME(pack_columns),
                                               NAME(tile),
                                               NAME(tile_of_unpacked_columns),
                                               NAME(tile_of_unpacked_rows),
                                               THIN};

#undef THIN
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
