"""A small corpus in WSJ0's shape, and the recipe that mixes it."""

from __future__ import annotations

import sys

import soundfile as sf
from loading import load_recipe, run_recipe
from tiny_corpus import RATE as TINY_RATE
from tiny_corpus import voice

from convtasnet.generation.wsj0 import RATE

prepare = load_recipe("wsj0_mix")
wsj0_levels, wsj0_mixing = sys.modules["wsj0_levels"], sys.modules["wsj0_mixing"]

SPEAKERS = {
    "si_tr_s": ("01a", "01b", "01c", "01d"),
    "si_dt_05": ("05e",),
    "si_et_05": ("06f", "06g"),
}
UTTERANCES = 5
COUNTS = ("--counts", "4", "2", "2")
EVERYTHING = ("--sample-rate", "8000", "16000", "--mode", "min", "max")


def write_corpus(root):
    """Utterances of 0.8 to 1.2 s at 16 kHz: wav, and two speakers in the format of WSJ0."""
    seed = 0
    for name, speakers in SPEAKERS.items():
        for speaker in speakers:
            for k in range(UTTERANCES):
                seed += 1
                seconds = 0.8 + 0.4 * (7 * seed % 10) / 10
                wav = voice(seed, seconds * RATE / TINY_RATE) * (0.1 + 0.3 * k)
                sphere = speaker in ("01c", "06g")
                suffix, kind = ("wv1", "NIST") if sphere else ("wav", "WAV")
                file = root / "wsj0" / name / speaker / f"{speaker}o03{k}.{suffix}"
                file.parent.mkdir(parents=True, exist_ok=True)
                sf.write(file, wav.clamp(-1, 1).numpy(), RATE, format=kind, subtype="PCM_16")
    return root


def run(corpus, out, *arguments):
    run_recipe(prepare, "--corpus", corpus, "--out", out, *arguments)
    return out


def write_lists(folder, lines, n_src=2):
    folder.mkdir(exist_ok=True)
    for split in ("tr", "cv", "tt"):
        (folder / f"mix_{n_src}_spk_{split}.txt").write_text("".join(f"{x} \n" for x in lines))
    return folder
