"""The same bits on any machine: native kernels, and a slow reference that says what they must give."""
