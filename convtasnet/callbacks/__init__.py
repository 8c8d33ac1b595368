"""Lightning callbacks: what a training run writes, and when it ends."""
