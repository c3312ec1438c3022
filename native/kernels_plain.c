/* What every machine of the architecture can run. On 64-bit ARM that includes NEON and fma. */
#define LEVEL plain
#include "kernels.inc"
