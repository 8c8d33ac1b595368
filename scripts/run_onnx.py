"""Separate a recording without PyTorch: ``python run_onnx.py model.onnx mixture.wav``.

Needs numpy and onnxruntime alone. Writes mixture_s1.wav, mixture_s2.wav, …, 16 bit.
"""

import sys
import wave

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
rate = int(session.get_modelmeta().custom_metadata_map["sample_rate"])
with wave.open(sys.argv[2]) as file:
    assert file.getparams()[:3] == (1, 2, rate), f"one channel of 16 bits at {rate} Hz is needed"
    mixture = np.frombuffer(file.readframes(-1), "<i2").astype(np.float32) / 32768

(voices,) = session.run(None, {"mixture": mixture[None]})  # (1, samples) -> (1, n_src, samples)

for number, voice in enumerate(voices[0], start=1):
    with wave.open(f"{sys.argv[2].removesuffix('.wav')}_s{number}.wav", "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        voice *= mixture @ voice / (voice @ voice + 1e-12)  # its level in the mixture
        file.writeframes((32767 * voice.clip(-1, 1)).astype("<i2").tobytes())
