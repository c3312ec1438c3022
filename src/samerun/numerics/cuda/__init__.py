"""Portable kernels on CUDA: the functions of the C library, with the same names and arguments, on a device's memory."""
