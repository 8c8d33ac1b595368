"""Time a training step of our model and, in the same run, of other toolkits' Conv-TasNets.

    python scripts/bench_step.py --json step.json --plot step.png
    python scripts/bench_step.py --quick
    python scripts/bench_step.py --models ours asteroid --modes reduce-overhead --precision bf16
    python scripts/bench_step.py --growth
    python scripts/bench_step.py --device cpu --size tiny --batch 2 --seconds 1

A step is the forward pass, the PIT SI-SDR loss, the backward pass, clipping and Adam, at the
paper's size. Times are medians; ``÷ ours`` is a cost in that of our model in the same line of
settings. Modes: "eager" launches every kernel; "graph" replays forward and backward pass from CUDA
graphs, as ``train.py`` does; "compiled" replays the whole step, with torch.compile, from one;
"reduce-overhead" is that mode of torch.compile, with its own graphs. A model that cannot run is a
line with the reason.
torchaudio has no causal model.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from peers import AsteroidConvTasNet, TorchaudioConvTasNet
from step_tables import OURS, growth_table, record, step_table
from torch import nn
from training_step import MODES, PRECISIONS, Failure, Measurement, Variant, measure

from convtasnet.cli import Parser, run_main
from convtasnet.model import ConvTasNet

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
MODELS: dict[str, Callable[..., nn.Module]] = {
    OURS: ConvTasNet,
    "asteroid": AsteroidConvTasNet,
    "torchaudio": TorchaudioConvTasNet,
}
PACKAGES = {"asteroid": "asteroid", "torchaudio": "torchaudio"}
EXPERIMENTS = ("causal", "noncausal")
SAMPLE_RATE = 8000  # of the experiments
NONCAUSAL_ONLY = ("torchaudio",)  # has no causal model
PICTURES = (".png", ".svg", ".pdf")
GROWTH_BATCHES = (1, 4, 8, 16)
GROWTH_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, help="default: all that are installed")
    add("--experiment", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS, help="default: both")
    add("--precision", nargs="+", choices=PRECISIONS, help="default: tf32 bf16; fp32 on a CPU")
    add("--modes", nargs="+", choices=MODES, help="default: eager graph; eager on a CPU")
    add("--batch", type=int, default=8, help="items (default: %(default)s)")
    add("--seconds", type=float, default=4.0, help="length of each (default: %(default)s)")
    add("--size", choices=("paper", "small", "tiny"), default="paper", help="of configs/model")
    add("--quick", action="store_true", help="our model, in one precision and mode")
    add("--growth", action="store_true", help="our model against batch and length, 1 s to 60 s")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--json", type=Path, metavar="FILE", help="write all figures here")
    add("--plot", type=Path, metavar="FILE", help="draw the times of the steps here")
    args = parser.parse_args(arguments)
    check(args)
    few, on_cpu = args.quick or args.growth, args.device == "cpu"
    args.models = args.models or ([OURS] if few else list(MODELS))
    args.precision = args.precision or (
        ["fp32"] if on_cpu else ["bf16"] if few else ["tf32", "bf16"]
    )
    args.modes = args.modes or (["eager"] if on_cpu else ["graph"] if few else ["eager", "graph"])
    return args


def check(args: argparse.Namespace) -> None:
    """Refuse what would fail later."""
    if args.batch < 1:
        raise ValueError(f"--batch {args.batch}: must be at least 1")
    if not 1 <= args.seconds * SAMPLE_RATE < math.inf:
        raise ValueError(f"--seconds {args.seconds}: must be finite, and one sample at least")
    for option in ("json", "plot"):
        file = getattr(args, option)
        if file and not file.absolute().parent.is_dir():
            raise ValueError(f"--{option}: {file.absolute().parent} is not a folder")
        if file and file.is_dir():
            raise ValueError(f"--{option}: {file} is a folder, not a file")
    if args.plot and args.plot.suffix not in PICTURES:
        raise ValueError(f"--plot {args.plot}: the name must end in {', '.join(PICTURES)}")
    if args.plot and find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib")
    if args.growth and (args.plot or (args.models or [OURS]) != [OURS]):
        raise ValueError(
            "--growth is a table of our model alone: neither --plot nor other --models"
        )
    if args.device == "cpu" and (args.modes or ["eager"]) != ["eager"]:
        raise ValueError(f"--modes {' '.join(args.modes)}: a CPU has eager only")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device; --device cpu times the CPU")


class Bench:
    """Measures and prints; keeps all it found in ``results``.

    Args:
        args: the parsed command line.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.device = args, torch.device(args.device)
        self.results: dict[Variant, Measurement | Failure] = {}
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            self.hparams = {each: hparams(each, args.size) for each in args.experiment}

    def steps(self) -> None:
        """A table for each experiment and precision."""
        size = f"batch {self.args.batch} of {self.args.seconds:g} s"
        installed = [name for name in self.args.models if is_installed(name)]
        for missing in sorted(set(self.args.models) - set(installed)):
            print(f"{missing}: not installed")
        for experiment, precision in product(self.args.experiment, self.args.precision):
            left_out = NONCAUSAL_ONLY if experiment == "causal" else ()
            models = [name for name in installed if name not in left_out]
            print(f"\n{experiment}, {precision}: {size}\n", flush=True)
            group = self.measure_all(
                Variant(model, experiment, precision, mode, self.args.batch, self.args.seconds)
                for mode, model in product(self.args.modes, models)
            )
            found = [each for each in group.values() if isinstance(each, Measurement)]
            if found:
                print(step_table(found, self.results), flush=True)
            self.write()

    def growth(self) -> None:
        """A table for each experiment, precision and mode."""
        settings = product(self.args.experiment, self.args.precision, self.args.modes)
        for experiment, precision, mode in settings:
            kind = partial(Variant, OURS, experiment, precision, mode)
            base = kind(self.args.batch, self.args.seconds)
            yardstick = self.measure_all([base])[base]
            heading = (
                f"{experiment}, {precision}, {mode}: step, ms / GiB / time of a second of audio"
            )
            print(f"\n{heading}, ÷ that of {base.batch} × {base.seconds:g} s\n", flush=True)
            cells = product(GROWTH_SECONDS, GROWTH_BATCHES)
            grid = self.measure_all(kind(batch, seconds) for seconds, batch in cells)
            print(growth_table(grid, yardstick), flush=True)
            self.write()

    def measure_all(self, variants: Iterable[Variant]) -> dict[Variant, Measurement | Failure]:
        """Each variant once; failures are printed as they come."""
        group = {}
        for variant in variants:
            if variant not in self.results:
                build = partial(MODELS[variant.model], **self.hparams[variant.experiment])
                self.results[variant] = measure(variant, build, self.device)
                if isinstance(self.results[variant], Failure):
                    print(f"{self.results[variant]}\n", flush=True)
            group[variant] = self.results[variant]
        return group

    def write(self) -> None:
        """All that is known so far, as JSON and as a picture, where they are asked for."""
        args, found = self.args, list(self.results.values())
        if args.json:
            records = [record(each, self.results) for each in found]
            content = {**environment(args), "size": args.size, "variants": records}
            args.json.write_text(json.dumps(content, indent=1) + "\n")
        measured = [each for each in found if isinstance(each, Measurement)]
        if args.plot and measured:
            from step_plot import draw

            draw(measured, self.results, args.plot)


def hparams(experiment: str, size: str) -> dict[str, Any]:
    """Arguments of ``convtasnet.ConvTasNet``, as training would take them."""
    cfg = compose("train", [f"experiment={experiment}", f"model={size}"])
    arguments: Any = OmegaConf.to_container(cfg.model, resolve=True)
    del arguments["_target_"], arguments["fused"]
    return arguments


def is_installed(model: str) -> bool:
    """Whether what a model needs can be imported."""
    return model not in PACKAGES or find_spec(PACKAGES[model]) is not None


def environment(args: argparse.Namespace) -> dict[str, str]:
    """The device, and the versions of what is measured."""
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    found = {"device": name, "torch": torch.__version__}
    for package in ("triton", *(PACKAGES[model] for model in args.models if model in PACKAGES)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def run(arguments: Sequence[str] | None) -> int:
    args = parse(arguments)
    print(", ".join(f"{key} {value}" for key, value in environment(args).items()), flush=True)
    bench = Bench(args)
    # Graphs cannot be captured on the default stream.
    on_gpu = args.device == "cuda"
    with torch.cuda.stream(torch.cuda.Stream()) if on_gpu else nullcontext():
        (bench.growth if args.growth else bench.steps)()
    failures = [each for each in bench.results.values() if isinstance(each, Failure)]
    # That a model outgrows the memory is what a table of growth is for.
    return int(not args.growth and any(each.variant.model == OURS for each in failures))


def main(arguments: Sequence[str] | None = None) -> int:
    return run_main(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
