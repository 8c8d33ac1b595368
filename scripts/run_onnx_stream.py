"""Separate a pipe without PyTorch: ``… | python run_onnx_stream.py stream.onnx > voices.f32``.

Needs numpy and onnxruntime alone. Takes float32 samples of one channel at the model's rate and
gives those of the voices, interleaved, as soon as they are final.
"""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
stride, frames = int(about["stride"]), int(about["frames"])
types = {"tensor(float)": np.float32, "tensor(double)": np.float64}
shapes = {i.name: (i.shape, types[i.type]) for i in session.get_inputs() if i.name != "samples"}
taps, _ = shapes.pop("taps", (None, None))
if taps:  # frames of some blocks in a ring: those that the taps see are picked out
    n_taps, n_blocks, _, n_channels = taps
    backs = np.array(about["backs"].split(","), int).reshape(n_taps, n_blocks, 1)
    ring = np.zeros((n_blocks, backs.max(), n_channels), np.float32)
state = {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}
outputs = [output.name for output in session.get_outputs()]
count = 0  # frames


def read(n_samples: int) -> np.ndarray:
    data = sys.stdin.buffer.read(4 * n_samples)
    return np.frombuffer(data[: len(data) // 4 * 4], "<f4")


if "pending" in state:  # all other state begins with zeros
    state["pending"] = read(int(about["kernel_size"]) - stride)
while len(block := read(frames * stride)) >= stride:
    block = block[: len(block) // stride * stride]  # whole frames
    feeds, new = {"samples": block, **state}, np.arange(count, count + len(block) // stride)
    if taps:
        feeds["taps"] = ring[np.arange(n_blocks)[:, None], (new - backs) % backs.max()]
    results = dict(zip(outputs, session.run(None, feeds), strict=True))
    if taps:
        ring[:, new % backs.max()] = results["new_frames"]
    for name, before in state.items():
        state[name] = results[f"next_{name}"]
        if name.startswith("past_"):  # frames to be appended; the oldest are forgotten
            state[name] = np.concatenate((before, state[name]), 1)[:, -before.shape[1] :]
    count += len(new)
    sys.stdout.buffer.write(results["voices"].T.tobytes())
    sys.stdout.flush()
