r"""Turn a checkpoint of another toolkit into a folder of this project.

    python scripts/import_checkpoint.py best_model.pth --out asteroid_model
    python scripts/import_checkpoint.py model.pt --out ta \
        --hparams msk_num_layers=8 msk_activate=relu
    python scripts/import_checkpoint.py save/CKPT+2024 --out sb \
        --hparams norm_type=cLN causal=true mask_nonlinear=relu

Reads asteroid, torchaudio, SpeechBrain (its CKPT folder, or encoder.ckpt, masknet.ckpt and
decoder.ckpt) and kaituoxu/Conv-TasNet, files of this project too, and writes config.json,
model.safetensors and a model card: load it with ConvTasNet.from_pretrained(DIR) or convtasnet
separate FILE --checkpoint DIR. Nothing that a file may hold is run. What a file does not hold is
asked for, in that toolkit's own names; values are JSON (true, 3, null), anything else is text.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from convtasnet.cli import Parser, run_main, setting
from convtasnet.importers.speechbrain import PARTS
from convtasnet.model import ConvTasNet
from convtasnet.portable import check_new_folder


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a checkpoint")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="is made")
    parser.add_argument(
        "--hparams",
        nargs="+",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="what the file does not hold",
    )
    parser.add_argument("--half", action="store_true", help="weights in float16")
    return parser.parse_args()


def source_of(files: list[str]) -> str:
    """The one checkpoint that the files are: SpeechBrain's three stand for their folder."""
    if len(files) == 1:
        return files[0]
    paths = [Path(file) for file in files]
    names = {f"{part}.ckpt" for part in PARTS}
    if len({path.parent for path in paths}) == 1 and {path.name for path in paths} == names:
        return str(paths[0].parent)
    raise ValueError(
        f"{len(files)} files are given: name one checkpoint, or SpeechBrain's "
        f"{', '.join(sorted(names))} of one folder"
    )


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    check_new_folder(options.out, "--out")
    model = ConvTasNet.from_pretrained(source_of(options.files), dict(options.hparams) or None)
    (model.half() if options.half else model).save_pretrained(options.out)
    toolkit = model.about.get("source", {}).get("toolkit", "convtasnet")
    print(f"{options.out}: a model of {toolkit}, {model.n_src} voices at {model.sample_rate} Hz")


if __name__ == "__main__":
    run_main(main)
