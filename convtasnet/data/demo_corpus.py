"""Writes the demo corpus: synthetic voices, mixed and laid out like WSJ0-mix."""

from __future__ import annotations

import json
import logging
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

from convtasnet.audio import read_audio, write_audio
from convtasnet.cores import available_cores
from convtasnet.data.demo_text import sentence
from convtasnet.data.espeak import Line, find_espeak, speak
from convtasnet.data.mixing import Mixture, count_combinations, draw_mixtures, mix
from convtasnet.data.wsj0_mix import FOLDERS, layout

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
SPLITS = tuple(FOLDERS.values())
# eSpeak NG's variants (they set pitch, formants and tone) that sound like a person: the splits
# share none of them, so that validation and test hear timbres that training never did.
VARIANTS = {
    "tr": (
        "Alex", "Andy", "Denis", "Diogo", "Gene", "Henrique", "Lee", "Michael", "Reed", "adam",
        "edward", "john", "m1", "m3", "m7", "Nguyen", "Alicia", "Andrea", "anika", "aunty", "f1",
        "f2", "f4", "grandma", "linda", "shelby", "steph",
    ),
    "cv": ("m4", "quincy", "max", "travis", "f5", "belinda"),
    "tt": ("victor", "david", "m5", "robert", "f3", "Annie"),
}  # fmt: skip
ACCENTS = (
    "en-us", "en", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-gb-x-rp", "en-029",
    "en-us-nyc",
)  # fmt: skip
# Three persons a variant, of different pitch, liveliness and pace.
PERSONS = (("a", 36, 45, 140), ("b", 50, 60, 155), ("c", 64, 50, 170))
DEMO_SPEAKER = r"(\w+)[abc]\d+"  # of an utterance's name: two persons of a variant never meet
MIXTURES_PER_UTTERANCE = 4  # how often an utterance is heard in a split, about
SILENCE = 1e-3
MARGIN = 0.05  # seconds of the silence around an utterance that are kept


@dataclass(frozen=True)
class DemoSpec:
    """All that determines the corpus.

    Args:
        n_src: speakers in a mixture, 1 to 6.
        sample_rate: in Hz.
        n_train: mixtures in ``tr``.
        n_valid: mixtures in ``cv``.
        n_test: mixtures in ``tt``.
        seed: seed of the sentences and of the mixtures.

    Raises:
        ValueError: an argument out of its range.
    """

    n_src: int = 2
    sample_rate: int = 8000
    n_train: int = 1000
    n_valid: int = 100
    n_test: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        most = min(map(len, VARIANTS.values()))
        if not 1 <= self.n_src <= most:
            raise ValueError(f"n_src={self.n_src}: the demo corpus mixes 1 to {most} voices")
        if self.sample_rate < 1:
            raise ValueError(f"sample_rate={self.sample_rate}, expected at least 1 Hz")
        for name in ("n_train", "n_valid", "n_test"):
            count = getattr(self, name)
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"{name}={count!r}, expected at least 1 mixture")

    @property
    def key(self) -> str:
        """Name of the corpus's folder; other arguments, other folder.

        >>> DemoSpec().key
        'demo-v1-2spk-8000hz-1000-100-100-seed0'
        """
        return (
            f"demo-v{FORMAT_VERSION}-{self.n_src}spk-{self.sample_rate}hz-"
            f"{self.n_train}-{self.n_valid}-{self.n_test}-seed{self.seed}"
        )

    def n_mixtures(self, split: str) -> int:
        """Mixtures of a split ``tr``, ``cv`` or ``tt``."""
        return {"tr": self.n_train, "cv": self.n_valid, "tt": self.n_test}[split]


def make_demo_corpus(parent: Path, spec: DemoSpec, n_workers: int | None = None) -> Path:
    """Write the corpus into ``parent``, unless it is there already.

    It is written in a temporary folder that is renamed when it is whole: an interrupted run leaves
    no half corpus, and of two processes at once one's work is kept. The same ``spec`` and version
    of eSpeak NG give the same samples, whatever ``n_workers``.

    Args:
        parent: folder of all demo corpora.
        spec: what to make.
        n_workers: processes that speak and threads that write; default: the number of cores.

    Returns:
        ``parent / spec.key``: root of a WSJ0-mix tree, with a ``corpus.json`` that says what it is.

    Raises:
        ValueError: eSpeak NG is missing, with what to do about it.
    """
    target = parent / spec.key
    if target.is_dir():
        return target
    find_espeak()
    log.info(
        "Making the demo corpus in %s: %d mixtures of synthetic voices, spoken by eSpeak NG (GPL; "
        "used for this corpus only). Results on it say nothing about human speech.",
        target, spec.n_train + spec.n_valid + spec.n_test,
    )  # fmt: skip
    parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{spec.key}-", dir=parent))
    try:
        _fill(work, spec, n_workers or available_cores())
        work.chmod(0o755)  # mkdtemp's own mode would keep other users out of a shared cache
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            log.info("%s: another process made it meanwhile", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _fill(work: Path, spec: DemoSpec, n_workers: int) -> None:
    spoken = work / "spoken"
    spoken.mkdir()
    plans = {split: _plan_lines(spoken, spec, split) for split in SPLITS}
    batches = [batch for plan in plans.values() for batch in plan.values()]
    done = speak(batches, n_workers)
    for _ in track(done, "Speaking (voices)", total=len(batches), transient=True):
        pass
    jobs = [job for split in SPLITS for job in _plan_mixtures(work, spec, split, plans[split])]
    utterances = _Utterances(spec.sample_rate)
    with ThreadPoolExecutor(n_workers) as pool:
        written = pool.map(lambda job: _write(job[0], job[1], utterances), jobs)
        for _ in track(written, "Mixing", total=len(jobs), transient=True):
            pass
    shutil.rmtree(spoken)
    about = {
        "what": "synthetic voices spoken by eSpeak NG, mixed as WSJ0-mix",
        "format_version": FORMAT_VERSION,
        **asdict(spec),
        "variants": VARIANTS,
    }
    (work / "corpus.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _plan_lines(spoken: Path, spec: DemoSpec, split: str) -> dict[str, list[Line]]:
    """What each voice of a split says: voice -> its lines, in the order of speaking."""
    rng = random.Random(f"demo/{split}/{spec.seed}")
    variants = VARIANTS[split]
    voices = [(variant, person) for person in range(len(PERSONS)) for variant in variants]
    counts = _line_counts(spec.n_mixtures(split), spec.n_src, voices)
    plan = {}
    for (variant, person), count in zip(voices, counts, strict=True):
        letter, pitch, pitch_range, rate = PERSONS[person]
        accent = ACCENTS[(variants.index(variant) + 3 * person) % len(ACCENTS)]
        name = variant + letter
        lines = [
            Line(f"{accent}+{variant}", pitch, pitch_range, rate, sentence(rng),
                 str(spoken / f"{split}-{name}{i:02d}.wav"))
            for i in range(count)
        ]  # fmt: skip
        if lines:
            plan[name] = lines
    return plan


def _line_counts(n_mixtures: int, n_src: int, voices: Sequence[tuple[str, int]]) -> list[int]:
    """Lines of each voice: enough for mixtures without repeats, each line heard a few times."""
    total = max(2 * n_src, n_mixtures * n_src // MIXTURES_PER_UTTERANCE)
    while True:
        counts = [total // len(voices) + (i < total % len(voices)) for i in range(len(voices))]
        sizes: dict[str, int] = {}
        for (variant, _), count in zip(voices, counts, strict=True):
            sizes[variant] = sizes.get(variant, 0) + count
        if count_combinations(list(sizes.values()), n_src) >= n_mixtures:
            return counts
        total += max(1, total // 8)


def _plan_mixtures(
    work: Path, spec: DemoSpec, split: str, plan: Mapping[str, Sequence[Line]]
) -> Iterator[tuple[Path, Mixture]]:
    """Mixtures of a split; two voices of one variant never meet."""
    by_variant: dict[str, list[str]] = {}
    for name, lines in plan.items():
        by_variant.setdefault(name[:-1], []).extend(line.path for line in lines)
    folder = layout(work, spec.n_src, spec.sample_rate, "min", split)
    seed = f"{split}/{spec.seed}"
    for mixture in draw_mixtures(by_variant, spec.n_mixtures(split), spec.n_src, seed):
        yield folder, mixture


class _Utterances:
    """Spoken files as trimmed tensors; each is read once a thread at most."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._read: dict[str, Tensor] = {}

    def __getitem__(self, path: str) -> Tensor:
        if path not in self._read:
            self._read[path] = _trim(read_audio(path, self.sample_rate)[0], self.sample_rate)
        return self._read[path]


def _trim(wav: Tensor, sample_rate: int) -> Tensor:
    """Cut the silence at both ends, but for a short margin."""
    heard = torch.nonzero(wav.abs() > SILENCE)
    margin = round(MARGIN * sample_rate)
    return wav[max(0, int(heard[0]) - margin) : int(heard[-1]) + 1 + margin]


def _write(folder: Path, mixture: Mixture, utterances: _Utterances) -> None:
    """Write one mixture and its sources under WSJ0-mix's name: utterance_gain_utterance_gain."""
    wavs = [utterances[path] for path in mixture.paths]
    length = min(map(len, wavs))
    mixed, sources = mix([wav[:length] for wav in wavs], mixture.gains_db)
    parts = [
        f"{Path(path).stem.split('-')[1]}_{gain:.4f}"
        for path, gain in zip(mixture.paths, mixture.gains_db, strict=True)
    ]
    name = "_".join(parts) + ".wav"
    write_audio(folder / "mix" / name, mixed, utterances.sample_rate)
    for i, source in enumerate(sources, start=1):
        write_audio(folder / f"s{i}" / name, source, utterances.sample_rate)
