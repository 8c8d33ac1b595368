"""Normalization kernels for maps shaped (batch, channels, time)."""
