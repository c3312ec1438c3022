"""The operators of the specification: one file per family, and the table of all."""
