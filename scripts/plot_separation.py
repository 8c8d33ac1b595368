"""Draw spectrograms of a mixture and of its separated voices, as a png.

``python scripts/plot_separation.py --checkpoint FILE MIXTURE.wav --out separation.png``, or an item
of the data that the checkpoint was trained on: ``--split test --item 0`` in place of the mixture.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import matplotlib
import numpy as np
import torch
from hydra.utils import instantiate
from torch import Tensor

from convtasnet.audio import read_audio
from convtasnet.cli import run_main
from convtasnet.data.stored import stored_data
from convtasnet.inference import rescale, separate
from convtasnet.model import ConvTasNet

matplotlib.use("Agg")
from matplotlib import pyplot as plt

WINDOW_SECONDS = 0.032
RANGE_DB = 70.0  # below the loudest point of the mixture


def decibels(wav: Tensor, sample_rate: int) -> np.ndarray:
    """(T,) -> (frequencies, frames)."""
    n_fft = round(WINDOW_SECONDS * sample_rate)
    window = torch.hann_window(n_fft)
    spectrum = torch.stft(wav, n_fft, n_fft // 4, window=window, return_complex=True)
    return 20 * np.log10(spectrum.abs().numpy() + 1e-8)


def plot(mixture: Tensor, voices: Tensor, sample_rate: int, title: str, out: Path) -> None:
    signals = {"mixture": mixture} | {f"voice {i + 1}": voice for i, voice in enumerate(voices)}
    pictures = {name: decibels(wav, sample_rate) for name, wav in signals.items()}
    top = pictures["mixture"].max()
    figure, axes = plt.subplots(
        len(signals), sharex=True, figsize=(8, 1.9 * len(signals)), layout="constrained"
    )
    extent = (0, len(mixture) / sample_rate, 0, sample_rate / 2000)
    for axis, (name, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(
            picture, origin="lower", aspect="auto", extent=extent, vmin=top - RANGE_DB, vmax=top
        )
        axis.set(title=name, ylabel="kHz")
    axes[-1].set_xlabel("seconds")
    figure.suptitle(title)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=80)


def load_mixture(options: argparse.Namespace, model: ConvTasNet) -> tuple[Tensor, int, str]:
    """Mixture (T,), its rate and its name."""
    if options.mixture is not None:
        wav, rate = read_audio(options.mixture)
        return wav, rate, options.mixture.name
    config = stored_data(model.training_config, options.checkpoint)
    if not config:
        raise ValueError(f"{options.checkpoint} does not name its data: give a MIXTURE file")
    data = instantiate(config)
    dataset = data.dataset(options.split)
    if not 0 <= options.item < len(dataset):
        raise ValueError(f"--item {options.item}: the {options.split} set has {len(dataset)} items")
    item = dataset[options.item]
    return item["mixture"], data.sample_rate, item["id"]


def draw(options: argparse.Namespace) -> None:
    model = ConvTasNet.from_pretrained(options.checkpoint)
    mixture, rate, name = load_mixture(options, model)
    if len(mixture) < WINDOW_SECONDS * rate:
        raise ValueError(f"{name} is shorter than one window of {WINDOW_SECONDS} s")
    voices = rescale(separate(model, mixture, rate), mixture)
    plot(mixture, voices, rate, name, options.out)
    print(options.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mixture", nargs="?", type=Path, metavar="MIXTURE", help="audio file")
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="FILE")
    parser.add_argument("--split", default="test", choices=("train", "valid", "test"))
    parser.add_argument("--item", default=0, type=int, metavar="N", help="item of the split")
    parser.add_argument("--out", default=Path("separation.png"), type=Path, metavar="PNG")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    run_main(lambda: draw(options))


if __name__ == "__main__":
    main()
