"""What the benchmarks of the kernels and of the whole training step share."""
