r"""Separate a microphone or a pipe while it lasts.

    ffmpeg -i mixture.wav -f s16le -ac 1 -ar 8000 - \
      | python scripts/stream.py > voices.s16
    sox mixture.wav -t raw -e float -b 32 -c 1 -r 8000 - \
      | python scripts/stream.py --checkpoint best.ckpt --format f32le --voice 1 \
      | play -t raw -e float -b 32 -c 1 -r 8000 -
    python scripts/stream.py --mic --play 1

Runs the model that comes with the package, or --checkpoint: what separate.py takes. Raw PCM of one
channel comes in on stdin, and raw PCM of the same format goes out on stdout, all voices interleaved
or one of them. Or a microphone is recorded, until Ctrl-C, and a voice played: both need the extra
"live" (pip install 'convtasnet[live]'). A line on stderr says how computing keeps up with time. The
rate is the model's: let ffmpeg or sox resample.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from convtasnet.cli import DEVICES, Parser, resolve_device, run_main
from convtasnet.model import ConvTasNet
from convtasnet.shipped import shipped_model
from convtasnet.streaming import StreamingSeparator
from convtasnet.streaming.levels import RunningLevels
from convtasnet.streaming.meter import RealTimeMeter
from convtasnet.streaming.pcm import FORMATS, PcmReader, PcmWriter

Sink = Callable[[np.ndarray], object]  # takes voices (n_src, m)
ANY = "default"  # microphone, the system's


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--checkpoint", metavar="X", help="a causal model; default: the one that is shipped")
    add("--format", choices=FORMATS, default="s16le", help="of both pipes (default: %(default)s)")
    add("--rate", type=int, metavar="HZ", help="of both pipes; checked against the model's")
    add("--block-ms", type=float, default=10.0, metavar="MS", help="default: %(default)s")
    add("--voice", type=int, metavar="N", help="write this voice alone, counted from 1")
    add("--levels", choices=("mixture", "model"), default="mixture", help="see docs/streaming.md")
    add("--half-life", type=float, metavar="S", help="seconds, see docs/streaming.md")
    add("--mic", nargs="?", const=ANY, metavar="DEVICE", help="record, instead of stdin")
    add("--play", type=int, metavar="N", help="play this voice, instead of writing to stdout")
    add("--device", choices=DEVICES, default="cpu", help="computes (default: %(default)s)")
    return parser.parse_args()


def check(args: argparse.Namespace, model: ConvTasNet) -> int:
    """Samples of a block; a ValueError for what does not fit."""
    if args.rate not in (None, model.sample_rate):
        raise ValueError(
            f"--rate {args.rate}, but the model is one of {model.sample_rate} Hz: resample with "
            f"ffmpeg's -ar {model.sample_rate} or sox's -r {model.sample_rate}"
        )
    for option in ("voice", "play"):
        number = getattr(args, option)
        if number is not None and number not in range(1, model.n_src + 1):
            raise ValueError(f"--{option} {number}: the model has voices 1 to {model.n_src}")
    if args.voice is not None and args.play is not None:
        raise ValueError("--voice is of stdout, which --play does not write")
    if not args.block_ms <= 60_000:
        raise ValueError(f"--block-ms {args.block_ms:g} is more than a minute")
    block = round(args.block_ms * model.sample_rate / 1000) if args.block_ms > 0 else 0
    if block < 1:
        raise ValueError(f"--block-ms {args.block_ms:g} is less than a sample")
    if args.mic is None and sys.stdin.isatty():
        raise ValueError("stdin is a terminal: pipe raw PCM into it, or record with --mic")
    if args.play is None and sys.stdout.isatty():
        raise ValueError("stdout is a terminal: pipe or redirect it, or listen with --play 1")
    return block


def sounddevice() -> Any:
    """The library for microphones and loudspeakers."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:  # OSError: it is there, PortAudio is not
        raise ValueError(
            f"--mic and --play need sounddevice ({error}): pip install 'convtasnet[live]'; on "
            "Linux also the package libportaudio2"
        ) from None
    return sounddevice


def microphone(device: str, rate: int, block: int) -> Iterator[np.ndarray]:
    """Blocks (k,) float32, without end."""
    library = sounddevice()
    lost = 0
    where = int(device) if device.isdigit() else None if device == ANY else device
    try:
        with library.InputStream(rate, block, where, channels=1, dtype="float32") as stream:
            while True:
                samples, overflowed = stream.read(block)
                lost += overflowed
                yield samples[:, 0]
    except library.PortAudioError as error:
        raise ValueError(f"--mic {device}: {error}") from None
    finally:
        if lost:
            print(f"{lost} times samples were lost: use longer --block-ms", file=sys.stderr)


def loudspeaker(voice: int, rate: int) -> Sink:
    """Plays one voice."""
    library = sounddevice()
    try:
        stream = library.OutputStream(rate, channels=1, dtype="float32")
        stream.start()
    except library.PortAudioError as error:
        raise ValueError(f"--play {voice}: {error}") from None
    return lambda voices: stream.write(np.ascontiguousarray(voices[voice - 1, :, None]))


def separate(
    blocks: Iterable[np.ndarray],
    stream: StreamingSeparator,
    levels: RunningLevels | None,
    sink: Sink,
    meter: RealTimeMeter,
) -> None:
    """Run all blocks through the stream, each into the sink as soon as it is final."""
    waiting = np.zeros(0, np.float32)  # mixture whose voices are still to come

    def emit(voices: np.ndarray) -> None:
        nonlocal waiting
        mixture, waiting = np.split(waiting, [voices.shape[1]])
        sink(voices if levels is None else levels(voices, mixture))

    try:
        for block in blocks:
            with meter.block(len(block)):
                waiting = np.concatenate((waiting, block))
                voices = stream.push(block)
            emit(voices)
    except KeyboardInterrupt:  # the way to end a microphone
        pass
    emit(stream.flush().numpy(force=True))


def run() -> None:
    args = parse()
    torch.set_num_threads(1)  # blocks are too small to share
    model = ConvTasNet.from_pretrained(args.checkpoint or shipped_model()).to(
        resolve_device(args.device)
    )
    block = check(args, model)
    stream = StreamingSeparator(model, args.half_life)
    levels = RunningLevels(model.n_src, model.sample_rate) if args.levels == "mixture" else None
    reader = PcmReader(sys.stdin.buffer, args.format, block)
    writer = PcmWriter(sys.stdout.buffer, args.format)
    blocks: Iterable[np.ndarray] = reader
    if args.mic is not None:
        blocks = microphone(args.mic, model.sample_rate, block)
    sink: Sink = writer
    if args.play is not None:
        sink = loudspeaker(args.play, model.sample_rate)
    elif args.voice is not None:
        sink = lambda voices: writer(voices[args.voice - 1 : args.voice])  # noqa: E731
    meter = RealTimeMeter(model.sample_rate)
    try:
        separate(blocks, stream, levels, sink, meter)
    except BrokenPipeError:  # the reader of the voices has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"{meter}{changes(reader, writer)}", file=sys.stderr)
    if reader.cut:
        raise ValueError(
            f"stdin ended {reader.cut} bytes into a sample: is it {args.format} of one channel?"
        )


def changes(reader: PcmReader, writer: PcmWriter) -> str:
    """What did not pass as it was."""
    counts = {
        "NaN or infinite samples set to zero": reader.replaced,
        "samples clipped": writer.clipped,
    }
    return "".join(f", {count} {what}" for what, count in counts.items() if count)


if __name__ == "__main__":
    run_main(run)
