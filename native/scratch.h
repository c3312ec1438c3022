/* Memory that a thread keeps from call to call: fresh pages cost more than small products. */
#ifndef SAMERUN_SCRATCH_H
#define SAMERUN_SCRATCH_H

#include <stddef.h>

enum { SCRATCH_PANELS, SCRATCH_IMAGE, SCRATCH_PHASE, SCRATCH_WEIGHT, SCRATCHES };

/* At least `bytes` bytes on a cache line, to be given back with the same number; NULL without memory.
 * The content is undefined. One of each kind at a time for each thread. */
void *samerun_borrow_scratch(int kind, size_t bytes);
void samerun_release_scratch(int kind, void *memory);

#endif
