"""Draw spectrograms of a mixture and of its separated voices, as a png.

``python scripts/plot_separation.py --checkpoint FILE MIXTURE.wav --out separation.png``, or an item
of the data that the checkpoint was trained on: ``--split test --item 0`` in place of the mixture.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from hydra.utils import instantiate
from torch import Tensor

from convtasnet.audio import read_audio
from convtasnet.cli import Parser, run_main
from convtasnet.data.stored import stored_data
from convtasnet.inference import rescale, separate
from convtasnet.model import ConvTasNet
from convtasnet.spectrograms import WINDOW_SECONDS, draw_spectrograms


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
    signals = {"mixture": mixture} | {f"voice {i + 1}": voice for i, voice in enumerate(voices)}
    draw_spectrograms(signals, rate, name, options.out)
    print(options.out)


def main() -> None:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("mixture", nargs="?", type=Path, metavar="MIXTURE", help="audio file")
    parser.add_argument("--checkpoint", required=True, type=Path, metavar="FILE")
    parser.add_argument("--split", default="test", choices=("train", "valid", "test"))
    parser.add_argument("--item", default=0, type=int, metavar="N", help="item of the split")
    parser.add_argument("--out", default=Path("separation.png"), type=Path, metavar="PNG")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    draw(options)


if __name__ == "__main__":
    run_main(main)
