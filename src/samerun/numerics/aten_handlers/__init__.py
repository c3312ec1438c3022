"""Handlers of aten overloads below autograd, as `portable()` runs them: one file per family, and the table of all."""
