"""Data sets of speech mixtures."""
