"""Whether what a model computes of a sample depends on the batch that the sample is in."""
