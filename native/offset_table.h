/* Tables of offsets along one dimension of an operand: what a product knows of a layout. */
#ifndef SAMERUN_OFFSET_TABLE_H
#define SAMERUN_OFFSET_TABLE_H

#include <stdbool.h>
#include <stdint.h>

/* Offsets along one dimension; run[i] is how many entries from i on ascend by one. */
typedef struct {
    int64_t *offset;
    int32_t *run;
    int64_t size;
} samerun_offset_table;

/* Room for `size` offsets and runs. False without memory. */
bool samerun_allocate_offset_table(samerun_offset_table *table, int64_t size);
/* Fill in the runs once the offsets stand. */
void samerun_fill_run_lengths(samerun_offset_table *table);

void samerun_free_offset_table_arrays(samerun_offset_table *table);

/* size entries 0, stride, 2 stride, ...; false without memory. */
bool samerun_build_strided_offsets(int64_t **offsets, int64_t size, int64_t stride);

#endif
