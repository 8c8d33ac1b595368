"""Separate a pipe without PyTorch: ``… | python run_onnx_stream.py stream.onnx > voices.f32``.

Takes float32 samples of one channel at the model's rate and gives those of the voices, interleaved,
as soon as they are final; in the end as many of each voice as came in. Needs numpy, onnxruntime
and, beside this file, a copy of convtasnet/export/onnx_stream.py.
"""

import sys

import numpy as np

try:
    from onnx_stream import OnnxStream
except ModuleNotFoundError:  # not copied: where the project is installed
    from convtasnet.export.onnx_stream import OnnxStream


def give(voices: np.ndarray) -> None:
    sys.stdout.buffer.write(voices.T.tobytes())  # (n_src, m) -> m samples of each voice
    sys.stdout.flush()


stream = OnnxStream(sys.argv[1])
while data := sys.stdin.buffer.read(4 * stream.frames * stream.stride):
    give(stream.push(np.frombuffer(data[: len(data) // 4 * 4], "<f4")))
give(stream.flush())
