/* What every machine of the architecture can run. On 64-bit ARM that includes NEON and fma. */
#define LEVEL plain
#define VECTOR 16
#include "kernels.inc"
