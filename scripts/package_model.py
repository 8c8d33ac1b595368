r"""Turn a training checkpoint into a folder to give away, with a model card.

    python scripts/package_model.py RUN/checkpoints/best.ckpt --out my_model --half \
        --scores EVALUATION/summary.json --license MIT --data "LibriMix, train-360, two voices"

Writes config.json (model, training configuration, scores), model.safetensors and README.md, the
model card; absolute paths of the training are cut to their last part. --half stores float16, after
a look at what that changes. Upload the folder with hf upload OWNER/NAME DIR, or load it with
ConvTasNet.from_pretrained(DIR).
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
from pathlib import Path
from typing import Any

import torch

from convtasnet.cli import Parser, run_main
from convtasnet.losses import si_sdr
from convtasnet.metrics import METRICS
from convtasnet.model import ConvTasNet
from convtasnet.portable import check_new_folder

log = logging.getLogger(__name__)
CARD = {
    "name": "of the model, the card's title",
    "data": "text on the training data",
    "scored_on": "text on the data of the scores: what, and whether training knew it",
    "license": "identifier of the license of the weights, such as MIT or cc-by-4.0",
    "limits": "text on what the model cannot do",
}
MIN_HALF_DB = 40.0  # of the float16 model's output against the float32 model's


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a training checkpoint (….ckpt)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="is made")
    parser.add_argument("--scores", type=Path, metavar="JSON", help="summary.json of an evaluation")
    parser.add_argument("--half", action="store_true", help="weights in float16")
    for name, help in CARD.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="TEXT", help=help)
    return parser.parse_args()


def read_scores(path: Path) -> dict[str, Any]:
    """What an evaluation says of the model, without its lists of reasons."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"--scores {path} is no JSON: {error}") from None
    if not isinstance(summary, dict) or "n" not in summary or not summary.keys() & METRICS.keys():
        raise ValueError(f"--scores {path} is no summary.json of an evaluation")
    return {k: v for k, v in summary.items() if isinstance(v, int | float) or k == "split"}


def halved(model: ConvTasNet) -> ConvTasNet:
    """The model in float16.

    Raises:
        ValueError: the rounding would be heard.
    """
    half = copy.deepcopy(model).half()
    noise = torch.randn(8 * model.sample_rate, generator=torch.Generator().manual_seed(0)) * 0.1
    with torch.inference_mode():
        fidelity = float(si_sdr(copy.deepcopy(half).float()(noise), model(noise)).min())
    log.info("float16 weights: outputs on noise agree to %.1f dB", fidelity)
    if not fidelity >= MIN_HALF_DB:
        raise ValueError(f"--half would leave {fidelity:.1f} dB of the outputs on noise: too few")
    return half


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    check_new_folder(options.out, "--out")
    model = ConvTasNet.from_pretrained(options.checkpoint)
    card = {name: text for name in CARD if (text := getattr(options, name)) is not None}
    model.about = {**model.about, "card": {**model.about.get("card", {}), **card}}
    if options.scores is not None:
        model.about["scores"] = read_scores(options.scores)
    (halved(model) if options.half else model).save_pretrained(options.out)
    print(options.out)


if __name__ == "__main__":
    run_main(main)
