"""Time streams: real-time factor and latency of blocks, PyTorch and ONNX Runtime, in one run.

    python scripts/bench_stream.py
    python scripts/bench_stream.py --checkpoint best.ckpt --blocks 10 --json stream.json

The model is the one that comes with the package, of the paper's size, or --checkpoint. All engines
take turns, round by round, so that they meet the same machine. The real-time factor, the time of
computing over the time of audio, is that of the best round; median and 99th percentile are of all
blocks. "offline" is one pass of the PyTorch model over a round's audio. Run it on one core
(taskset -c 0) with nothing beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from convtasnet.cli import Parser, run_main
from convtasnet.export import require_onnx
from convtasnet.model import ConvTasNet
from convtasnet.shipped import shipped_model
from convtasnet.streaming import StreamingSeparator
from convtasnet.streaming.folded import fold
from convtasnet_kernels.timing.table import markdown

ENGINES = ("torch", "onnx", "onnx-int8", "offline")
WARM_UP = 3  # blocks of each round that are not counted
Push = Callable[[np.ndarray], object]


@dataclass(frozen=True)
class Timing:
    """What an engine needs for blocks of one length.

    Args:
        engine: one of ``ENGINES``.
        block_ms: length of a block.
        real_time_factor: time of computing over time of audio, in the best round.
        median_ms: of a block's computing, in all rounds.
        percentile_99_ms: likewise.
    """

    engine: str
    block_ms: float
    real_time_factor: float
    median_ms: float
    percentile_99_ms: float

    @classmethod
    def of(cls, engine: str, block_ms: float, rounds: list[np.ndarray]) -> Timing:
        """Of each round's milliseconds a block."""
        median, high = np.percentile(np.concatenate(rounds), [50, 99])
        factor = min(float(each.mean()) for each in rounds) / block_ms
        return cls(engine, block_ms, factor, float(median), float(high))


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--checkpoint", metavar="X", help="a causal model; default: the one that is shipped")
    add("--blocks", type=float, nargs="+", default=[1, 4, 10, 32], metavar="MS")
    add("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    add("--rounds", type=int, default=30, help="default: %(default)s")
    add("--seconds", type=float, default=0.4, help="of audio a round (default: %(default)s)")
    add("--threads", type=int, default=1, help="default: %(default)s")
    add("--json", type=Path, metavar="FILE", help="write all rounds here")
    args = parser.parse_args()
    for option in ("rounds", "threads"):
        if getattr(args, option) < 1:
            raise ValueError(f"--{option} {getattr(args, option)}: must be at least 1")
    if args.json and not args.json.absolute().parent.is_dir():
        raise ValueError(f"--json: {args.json.absolute().parent} is not a folder")
    if any(engine.startswith("onnx") for engine in args.engines):
        require_onnx()
    return args


def engine(name: str, model: ConvTasNet, samples: int, threads: int) -> Push:
    """What is called with each block of so many samples."""
    if name == "torch":
        return StreamingSeparator(model).push
    if name == "offline":
        return lambda block: _offline(model, block)
    from convtasnet.export.onnx_stream import OnnxStream
    from convtasnet.export.streaming_graph import streaming_graph

    graph = streaming_graph(fold(model), samples // model.stride, int8=name.endswith("int8"))
    return OnnxStream(graph.SerializeToString(), threads).push


@torch.inference_mode()
def _offline(model: ConvTasNet, block: np.ndarray) -> torch.Tensor:
    return model(torch.from_numpy(block))


def time_round(push: Push, mixture: np.ndarray, samples: int) -> np.ndarray:
    """Milliseconds of each block of the mixture, the first ones not counted."""
    taken = []
    for start in range(0, len(mixture) - samples + 1, samples):
        begin = time.perf_counter()
        push(mixture[start : start + samples])
        taken.append(1e3 * (time.perf_counter() - begin))
    return np.array(taken[min(WARM_UP, len(taken) - 1) :])


def measure(args: argparse.Namespace, model: ConvTasNet) -> list[Timing]:
    """Blocks of each length by all engines, in turns."""
    rate = model.sample_rate
    mixture = np.random.default_rng(0).standard_normal(round(args.seconds * rate)) / 10
    mixture = mixture.astype(np.float32)
    found = []
    for block_ms in [*args.blocks, 1e3 * len(mixture) / rate]:
        samples = round(block_ms * rate / 1000)
        if samples < model.stride or samples > len(mixture):
            raise ValueError(
                f"--blocks {block_ms:g}: a block must have {model.stride} to {len(mixture)} samples"
            )
        whole = samples == len(mixture)
        names = [name for name in args.engines if (name == "offline") == whole]
        engines = {name: engine(name, model, samples, args.threads) for name in names}
        rounds: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for _ in range(args.rounds):
            for name, push in engines.items():
                rounds[name].append(time_round(push, mixture, samples))
        found += [Timing.of(name, block_ms, rounds[name]) for name in names]
    return found


def table(found: list[Timing]) -> str:
    header = ["block, ms", "engine", "real-time factor", "median, ms", "99 %, ms"]
    return markdown(
        header,
        [
            [
                f"{each.block_ms:g}",
                each.engine,
                f"{each.real_time_factor:.2f}",
                f"{each.median_ms:.2f}",
                f"{each.percentile_99_ms:.2f}",
            ]
            for each in found
        ],
    )


def run() -> None:
    args = parse()
    torch.set_num_threads(args.threads)
    found = measure(args, ConvTasNet.from_pretrained(args.checkpoint or shipped_model()))
    print(table(found))
    if args.json:
        content: dict[str, Any] = {
            "torch": torch.__version__,
            "threads": args.threads,
            "rounds": args.rounds,
            "seconds": args.seconds,
            "timings": [asdict(each) for each in found],
        }
        args.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    run_main(run)
