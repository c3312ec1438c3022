#include "sums.h"

#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "thread_pool.h"
#include "portable.h"

/* Dimensions that lie behind one another as one longer dimension are made one: fewer, longer runs. */
typedef struct {
    int n;
    int64_t size[MOST_DIMENSIONS], stride[MOST_DIMENSIONS], total;
} dims_t;

static void append_or_merge_dimension(dims_t *dims, int64_t size, int64_t stride) {
    dims->total *= size;
    if (size == 1) return;
    int last = dims->n - 1;
    if (last >= 0 && dims->stride[last] == stride * size) {
        dims->size[last] *= size;
        dims->stride[last] = stride;
    } else {
        dims->size[dims->n] = size;
        dims->stride[dims->n++] = stride;
    }
}

/* Where element `index` (row-major) lies. `run_length`: how many follow it with the same stride, itself included. */
static int64_t element_offset_and_run(const dims_t *dims, int64_t index, int64_t *run_length, int64_t *run_stride) {
    int64_t offset = 0;
    if (dims->n == 1) { /* without divisions, which take as long as a short row */
        *run_length = dims->size[0] - index, *run_stride = dims->stride[0];
        return index * dims->stride[0];
    }
    *run_length = 1, *run_stride = 1;
    for (int d = dims->n - 1; d >= 0; d--) {
        int64_t at = index % dims->size[d];
        if (d == dims->n - 1) *run_length = dims->size[d] - at, *run_stride = dims->stride[d];
        offset += at * dims->stride[d];
        index /= dims->size[d];
    }
    return offset;
}

/* `columns` outputs that lie next to each other are summed together. */
enum { COLUMNS = 256, FEW_COLUMNS = 8, AT_ONCE = 4 * SUM_LANES /* rows */ };

/* So many blocks side by side are added up by whoever summed them; so many times that at a time. */
enum { TOGETHER = 8, BRANCHES = 64 };

#define REAL float
#define NAME(name) name##32
#include "sums.inc"
#undef REAL
#undef NAME
#define REAL double
#define NAME(name) name##64
#include "sums.inc"
