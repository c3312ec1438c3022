"""What kernels return that may run out of memory: samerun_status of native/status.h, for the CPU and CUDA alike."""

DONE = 0
NO_MEMORY = -1
