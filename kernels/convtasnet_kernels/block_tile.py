"""How the steps of a fused block divide a map (B, H, F): chunks of channels."""

from __future__ import annotations

CHUNK = 32  # channels whose sums, frame by frame, one program leaves behind
