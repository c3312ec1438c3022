"""The numerical specification as slow, obvious NumPy: one rounding a line. It also serves without the library."""
