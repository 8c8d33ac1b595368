"""Pack a data set: all its samples in one file of 16 bits, and lists that name what is in it.

    python scripts/pack_data.py data=wsj0_mix data.root=/data/wsj0-mix --out /fast/wsj0-mix
    python scripts/pack_data.py data=speakers data.root=/data/speech --out /fast/speech

For disks that are slow with many small files: one file is quick to copy, to open and to read from
end to end. The data are overrides of configs/train.yaml as for train.py. All files are checked as
before training and brought to data.sample_rate. Samples of 16-bit files of that rate are kept
exactly, others are rounded to 2^-15 of their file's peak.

Sets of mixtures become audio.pack with train.csv, valid.csv and test.csv. Train with:
python train.py data=manifest data.root=/fast/wsj0-mix. Speakers become audio.pack with
speakers.csv. Train with: python train.py data=speakers data.root=/fast/speech/speakers.csv.
Validation and test are the same as without the pack.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from data_config import data_of

from convtasnet.cli import Parser, run_main
from convtasnet.data.checks import find_facts, raise_problems
from convtasnet.data.corpus import SPLITS, Utterance, as_manifest, list_utterances
from convtasnet.data.file_cache import FileFacts
from convtasnet.data.manifest import Manifest
from convtasnet.data.module import MixtureData
from convtasnet.data.pieces import read_pieces
from convtasnet.data.recordings import Recordings
from convtasnet.data.row import Row
from convtasnet.data.speakers import SpeakersData
from convtasnet.files import replacing
from convtasnet.pack import write_pack

PACK = "audio.pack"


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="overrides: data=NAME data.root=DIR"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--splits", nargs="+", choices=SPLITS, default=SPLITS, help="sets; default: all three"
    )
    return parser.parse_intermixed_args()


def pack(options: argparse.Namespace) -> None:
    out = options.out.absolute()
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out {out}: has something in it, name a new folder")
    data = data_of(options.data)
    if isinstance(data, SpeakersData):
        utterances = list_utterances(data.root)
        numbers, lengths = pack_files([as_manifest(utterances, data.root)], data, out)
        write_speakers(out / "speakers.csv", utterances, numbers, lengths)
        print(f"data=speakers data.root={out / 'speakers.csv'}")
        return
    data.check(options.splits)
    manifests = {split: data.manifest(split) for split in options.splits}
    numbers, lengths = pack_files(list(manifests.values()), data, out)
    for split, manifest in manifests.items():
        rows = [packed(row, out, numbers, lengths) for row in manifest]
        Manifest(rows, manifest.origin).to_csv(out / f"{split}.csv")
    print(f"data=manifest data.root={out}")


def pack_files(
    manifests: Sequence[Manifest], data: MixtureData, out: Path
) -> tuple[dict[str, int], np.ndarray]:
    """Write the pack; number of each file in it by its path, and lengths (n,)."""
    facts: dict[str, FileFacts] = {}
    for manifest in manifests:
        found, problems = find_facts(manifest, samples=data.check_level == "samples")
        raise_problems(problems)
        facts |= found
    paths = list(facts)
    recordings = Recordings(
        paths,
        np.array([facts[path].n_samples for path in paths]),
        np.array([facts[path].sample_rate for path in paths]),
        data.sample_rate,
    )
    pieces = read_pieces(recordings, data.num_workers, "Packing", show=sys.stderr.isatty())
    write_pack(out / PACK, recordings.lengths, data.sample_rate, pieces)
    hours = recordings.lengths.sum() / data.sample_rate / 3600
    print(f"{out / PACK}: {len(paths)} recordings, {hours:.2f} hours at {data.sample_rate} Hz")
    return {path: number for number, path in enumerate(paths)}, recordings.lengths


def packed(row: Row, out: Path, numbers: dict[str, int], lengths: np.ndarray) -> Row:
    """A mixture whose files are in the pack."""

    def place(path: str) -> str:
        return str(out / PACK / str(numbers[path]))

    return dataclasses.replace(
        row,
        mixture=place(row.mixture),
        sources=tuple(map(place, row.sources)),
        noise=row.noise and place(row.noise),
        length=int(lengths[numbers[row.mixture]]),
    )


def write_speakers(
    file: Path, utterances: Iterable[Utterance], numbers: dict[str, int], lengths: np.ndarray
) -> None:
    with replacing(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["speaker", "path", "length", "name"])
        for one in utterances:
            number = numbers[one.path]
            writer.writerow([one.speaker, f"{PACK}/{number}", lengths[number], one.name])


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    pack(options)


if __name__ == "__main__":
    run_main(main)
