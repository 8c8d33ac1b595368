"""Synthetic speech from eSpeak NG, each batch in a fresh process.

What eSpeak NG returns for a sentence depends on what the same process spoke before, so a batch is
spoken in its fixed order by a process of its own: the samples then depend on nothing else. This
file is that process's program too (``python -I espeak.py < jobs.json``), so it imports the
standard library alone.

eSpeak NG is GPL-3.0 and comes with the optional package ``espeakng-loader``; nothing of it is
linked into this package or shipped with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import wave
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

LONGEST_DATA_PATH = 120  # eSpeak NG fails, without a message, on paths of about 195 characters
SYNCHRONOUS, DONT_EXIT, UTF8 = 2, 0x8000, 1
RATE, VOLUME, PITCH, RANGE = 1, 2, 3, 4  # espeak_PARAMETER


@dataclass(frozen=True)
class Line:
    """One utterance to speak.

    Attributes:
        voice: eSpeak NG's name of language and variant, such as ``en-us+f3``.
        pitch: base pitch, 0 to 100; 50 is the variant's own.
        pitch_range: liveliness of the pitch, 0 to 100; 50 is the variant's own.
        rate: words a minute.
        text: what to say.
        path: 16-bit wav file to write, at eSpeak NG's own rate (22,050 Hz).
    """

    voice: str
    pitch: int
    pitch_range: int
    rate: int
    text: str
    path: str


def find_espeak() -> tuple[str, str]:
    """Paths of eSpeak NG's library and of its data, from the package ``espeakng-loader``.

    Raises:
        ValueError: the package is not installed, or lacks the library for this platform.
    """
    if importlib.util.find_spec("espeakng_loader") is None:
        raise ValueError(f"data=demo needs the package espeakng-loader. {_ADVICE}")
    import espeakng_loader

    library = Path(espeakng_loader.get_library_path())
    data = library.parent / "espeak-ng-data"
    for path in (library, data):
        if not path.exists():
            raise ValueError(f"data=demo: espeakng-loader has no {path}. {_ADVICE}")
    return str(library), str(data)


_ADVICE = (
    "Install it with: pip install 'convtasnet[demo]' (there is no wheel for some platforms, such "
    "as Linux on ARM and musl). Or train on data of your own: data=wsj0_mix, data=manifest or "
    "data=speakers, each with data.root=DIR"
)


def speak(batches: Sequence[Sequence[Line]], n_workers: int) -> Iterator[int]:
    """Speak the batches, ``n_workers`` at a time, each in its own process.

    Yields:
        Number of lines of each batch, as it is done.

    Raises:
        ValueError: eSpeak NG is missing (see ``find_espeak``), or fails on a batch.
    """
    library, data = find_espeak()
    with _short_path(data) as short, ThreadPoolExecutor(n_workers) as pool:
        jobs = [pool.submit(_speak_batch, library, short, batch) for batch in batches]
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:
            for job in jobs:
                job.cancel()


def _speak_batch(library: str, data: str, batch: Sequence[Line]) -> int:
    job = {"library": library, "data": data, "lines": [asdict(line) for line in batch]}
    done = subprocess.run(
        [sys.executable, "-I", __file__],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(
            f"eSpeak NG failed on the batch of {batch[0].path} (exit code {done.returncode}): "
            f"{done.stderr.strip()[-500:]}"
        )
    return len(batch)


@contextlib.contextmanager
def _short_path(data: str) -> Iterator[str]:
    """The data folder under a path short enough for eSpeak NG."""
    if len(os.fsencode(data)) <= LONGEST_DATA_PATH:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="espeak") as folder:
        link = Path(folder) / "d"
        if len(os.fsencode(link)) > LONGEST_DATA_PATH:
            raise ValueError(f"{link}: too long a path for eSpeak NG; set TMPDIR to a short one")
        link.symlink_to(data, target_is_directory=True)
        yield str(link)


def _main() -> None:
    job = json.load(sys.stdin)
    library = ctypes.CDLL(job["library"])
    sample_rate = library.espeak_Initialize(SYNCHRONOUS, 0, job["data"].encode(), DONT_EXIT)
    if sample_rate <= 0:
        sys.exit(f"espeak_Initialize gave {sample_rate} with the data in {job['data']}")
    # Breathy variants add noise, otherwise seeded by the time.
    library.espeak_ng_SetRandSeed(ctypes.c_long(1))
    spoken: list[bytes] = []

    def keep(samples: int | None, count: int, events: int | None) -> int:
        if samples and count > 0:
            spoken.append(ctypes.string_at(samples, 2 * count))
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    callback = kind(keep)  # kept alive as long as the library may call it
    library.espeak_SetSynthCallback(callback)
    for line in job["lines"]:
        spoken.clear()
        _say(library, Line(**line))
        if not any(map(any, spoken)):
            sys.exit(f"no sound from voice {line['voice']} for: {line['text']}")
        with wave.open(line["path"], "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(sample_rate)
            file.writeframes(b"".join(spoken))


def _say(library: ctypes.CDLL, line: Line) -> None:
    if library.espeak_SetVoiceByName(line.voice.encode()) != 0:
        sys.exit(f"eSpeak NG has no voice {line.voice}")
    # Some variants pass full scale at the usual volume of 100.
    settings = {RATE: line.rate, VOLUME: 50, PITCH: line.pitch, RANGE: line.pitch_range}
    for parameter, value in settings.items():
        library.espeak_SetParameter(parameter, value, 0)
    text = line.text.encode()
    status = library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, 1, 0, UTF8, None, None)
    if status != 0:
        sys.exit(f"espeak_Synth gave {status} for: {line.text}")


if __name__ == "__main__":
    _main()
