#include "offset_table.h"

#include <stdlib.h>

bool samerun_allocate_offset_table(samerun_offset_table *table, int64_t size) {
    table->size = size;
    table->offset = malloc((size_t)(size + 1) * sizeof *table->offset);
    table->run = malloc((size_t)(size + 1) * sizeof *table->run);
    return table->offset != NULL && table->run != NULL;
}

void samerun_free_offset_table_arrays(samerun_offset_table *table) {
    free(table->offset);
    free(table->run);
}

bool samerun_build_strided_offsets(int64_t **offsets, int64_t size, int64_t stride) {
    *offsets = malloc((size_t)(size + 1) * sizeof **offsets);
    for (int64_t i = 0; *offsets != NULL && i < size; i++) (*offsets)[i] = i * stride;
    return *offsets != NULL;
}

void samerun_fill_run_lengths(samerun_offset_table *table) {
    int32_t length = 0;
    for (int64_t i = table->size - 1; i >= 0; i--) {
        int next = i + 1 < table->size && table->offset[i + 1] == table->offset[i] + 1;
        length = next ? (length < INT32_MAX ? length + 1 : length) : 1;
        table->run[i] = length;
    }
}
