"""Separate a pipe without PyTorch: ``… | python run_onnx_stream.py stream.onnx > voices.f32``.

Needs numpy and onnxruntime alone. Takes float32 samples of one channel at the model's rate and
gives those of the voices, interleaved, as soon as they are final.
"""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = {k: int(v) for k, v in session.get_modelmeta().custom_metadata_map.items()}
types = {"tensor(float)": np.float32, "tensor(double)": np.float64}
state = {i.name: np.zeros(i.shape, types[i.type]) for i in session.get_inputs()[1:]}
outputs = [output.name for output in session.get_outputs()]


def read(n_samples: int) -> np.ndarray:
    data = sys.stdin.buffer.read(4 * n_samples)
    return np.frombuffer(data[: len(data) // 4 * 4], "<f4")


stride = about["stride"]
if "pending" in state:  # all other state begins with zeros
    state["pending"] = read(about["kernel_size"] - stride)
while len(block := read(about["frames"] * stride)) >= stride:
    block = block[: len(block) // stride * stride]  # whole frames
    results = dict(zip(outputs, session.run(None, {"samples": block, **state}), strict=True))
    for name, before in state.items():
        state[name] = results[f"next_{name}"]
        if name.startswith("past_"):  # rows to be appended; the oldest are forgotten
            state[name] = np.concatenate((before, state[name]))[-len(before) :]
    sys.stdout.buffer.write(results["voices"].T.tobytes())
    sys.stdout.flush()
