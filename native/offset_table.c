#include "offset_table.h"

#include <stdlib.h>

int samerun_allocate_offset_table(samerun_offset_table *axis, int64_t size) {
    axis->size = size;
    axis->offset = malloc((size_t)(size + 1) * sizeof *axis->offset);
    axis->run = malloc((size_t)(size + 1) * sizeof *axis->run);
    return axis->offset != NULL && axis->run != NULL;
}

void samerun_free_offset_table(samerun_offset_table *axis) {
    free(axis->offset);
    free(axis->run);
}

int samerun_allocate_strided_offsets(int64_t **to, int64_t size, int64_t stride) {
    *to = malloc((size_t)(size + 1) * sizeof **to);
    for (int64_t i = 0; *to != NULL && i < size; i++) (*to)[i] = i * stride;
    return *to != NULL;
}

void samerun_find_runs(samerun_offset_table *axis) {
    int32_t length = 0;
    for (int64_t i = axis->size - 1; i >= 0; i--) {
        int next = i + 1 < axis->size && axis->offset[i + 1] == axis->offset[i] + 1;
        length = next ? (length < INT32_MAX ? length + 1 : length) : 1;
        axis->run[i] = length;
    }
}
