"""Times the norms beside other implementations, in copies of the map that they normalize.

    python kernels/benchmarks/bench_norms.py --json norms.json --plots plots
    python kernels/benchmarks/bench_norms.py --quick
    python kernels/benchmarks/bench_norms.py --family cumulative --shape 8x512x4000 --dtype bf16
    python kernels/benchmarks/bench_norms.py --device cpu

All that is to be measured is first compiled, in many processes; then one measures.

A cell is `forward / backward`, each pass's time divided by that of `y.copy_(x)` on the same tensor
in the same run. A copy reads and writes the map once: a forward pass can do no better than 1, a
backward pass (two reads, one write) than 1.5. The layer norm is shown in GB/s, as in Triton's
tutorial: 2 passes over the matrix forward, 3 backward. All are medians, on a GPU of replays of
CUDA graphs. Small maps stay in its cache, where the copy beside them finds them, too.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import torch
from compile_ahead import Task, compile_ahead
from norm_peers import PEERS, Peer
from norm_timing import Laboratory
from norm_workloads import (
    COMPILED_QUICK,
    DTYPES,
    FAMILIES,
    Map,
    Shape,
    Workload,
    cpu_maps,
    gpu_maps,
    sized,
    sizes,
    workloads,
)
from ratio_table import Row, norm_table

from convtasnet_kernels.backend import triton_import_error

PLOTTED = ("cumulative", "global", "layer")


class Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, without the usage, and exit."""
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--family", nargs="+", choices=FAMILIES, default=FAMILIES, help="norms (default: all)")
    add("--shape", nargs="+", type=shape, help="maps as 8x512x4000, 4096x1024 for the layer norm")
    add("--dtype", nargs="+", choices=DTYPES, help="dtypes (default: all)")
    add("--quick", action="store_true", help="few maps, with a PReLU only")
    add(
        "--compiled",
        choices=("few", "all", "none"),
        default="few",
        help="maps that torch.compile is tried on, at seconds each; few (the default) are those "
        "behind a PReLU and the layer norm's",
    )
    add(
        "--jobs",
        type=int,
        default=min(16, os.cpu_count() or 1),
        metavar="N",
        help="processes that compile ahead, 0 for none (default: one a core, 16 at most)",
    )
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--threads", nargs="+", type=int, default=[1, 2], help="on a CPU (default: 1 2)")
    add("--json", type=Path, metavar="FILE", help="write all timings here")
    add("--plots", type=Path, metavar="DIR", help="draw GB/s against the size here, GPU only")
    args = parser.parse_args(arguments)
    if args.plots and args.device == "cpu":
        parser.error("--plots: only with --device cuda")
    if args.json and not args.json.absolute().parent.is_dir():
        parser.error(f"--json: {args.json.absolute().parent} is not a folder")
    if args.json and args.json.is_dir():
        parser.error(f"--json: {args.json} is a folder, not a file")
    for each in args.shape or ():
        if not any(len(each) == rank(family) for family in args.family):
            text = "x".join(map(str, each))
            parser.error(f"--shape: {text} is for none of the norms {' '.join(args.family)}")
    if args.jobs < 0:
        parser.error(f"--jobs: {args.jobs} is not a number of processes")
    if min(args.threads) < 1:
        parser.error(f"--threads: {min(args.threads)} is not a number of threads")
    return args


def shape(text: str) -> Shape:
    """``"8x512x4000"`` -> (8, 512, 4000)."""
    try:
        found = tuple(int(size) for size in text.split("x"))
    except ValueError:
        found = ()
    if len(found) not in (2, 3) or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither BxCxT nor MxN")
    return found


def rank(family: str) -> int:
    """Dimensions of a family's maps: (M, N) or (B, C, T)."""
    return 2 if family == "layer" else 3


def chosen_maps(args: argparse.Namespace, family: str) -> list[Map]:
    """The maps of a family that are asked for."""
    if args.shape:
        shapes = [each for each in args.shape if len(each) == rank(family)]
        return [(each, dtype) for each in shapes for dtype in args.dtype or DTYPES]
    known = (gpu_maps if args.device == "cuda" else cpu_maps)(family, args.quick)
    return [(each, dtype) for each, dtype in known if dtype in (args.dtype or DTYPES)]


def chosen_peers(args: argparse.Namespace, family: str) -> list[Peer]:
    """The peers that can run; on a CPU neither compiled ones nor those of other packages."""
    peers = [peer for peer in PEERS[family] if peer.installed]
    if args.device == "cpu":
        return [peer for peer in peers if not (peer.compiled or peer.package)]
    return [peer for peer in peers if not (peer.compiled and args.compiled == "none")]


def is_due(args: argparse.Namespace, peer: Peer, workload: Workload) -> bool:
    """Whether a peer is measured on a map."""
    if not peer.compiled or args.compiled == "all":
        return True
    if args.quick:
        return (workload.shape, workload.dtype) in COMPILED_QUICK
    return workload.is_common


def table_rows(args: argparse.Namespace, family: str) -> list[tuple[Workload, list[Peer | None]]]:
    """The maps of a family's table, each with the peers to measure, None for those to leave out."""
    maps, peers = chosen_maps(args, family), chosen_peers(args, family)
    return [
        (workload, [peer if is_due(args, peer, workload) else None for peer in peers])
        for threads in (args.threads if args.device == "cpu" else [0])
        for workload in workloads(family, maps, args.quick, threads)
    ]


def plotted_peers(args: argparse.Namespace, family: str) -> list[Peer]:
    """The lines of a family's plots, beside the copy; none where there are no plots."""
    if args.plots is None or family not in PLOTTED:
        return []
    peers = [peer for peer in chosen_peers(args, family) if peer.plotted]
    return [peer for peer in peers if not (args.quick and peer.compiled)]


def builds(args: argparse.Namespace) -> list[Task]:
    """What is to be compiled, each once, what takes long first."""
    tasks = [
        (workload, peer)
        for family in args.family
        for workload, peers in [
            *table_rows(args, family),
            *((sized(family, n), plotted_peers(args, family)) for n in sizes(family, args.quick)),
        ]
        for peer in peers
        if peer and peer.builds
    ]
    return sorted(dict.fromkeys(tasks), key=lambda task: not task[1].compiled)


def measure(args: argparse.Namespace, laboratory: Laboratory, family: str) -> list[Row]:
    """Measures and prints one family."""
    rows = [
        Row(laboratory.copy(workload), [p and laboratory.timing(workload, p) for p in peers])
        for workload, peers in table_rows(args, family)
    ]
    if rows:
        print(f"\n{family} norm: forward / backward\n")
        print(norm_table(rows, [peer.name for peer in chosen_peers(args, family)]), flush=True)
    for peer in PEERS[family]:
        if args.device == "cuda" and not peer.installed:
            print(f"{peer.name}: not installed")
    return rows


def draw_plots(args: argparse.Namespace, laboratory: Laboratory) -> None:
    from size_plots import draw

    for family in args.family:
        if peers := plotted_peers(args, family):
            draw(laboratory, family, sizes(family, args.quick), peers, args.plots)
    print(f"\nplots: {args.plots}")


def environment(args: argparse.Namespace, laboratory: Laboratory) -> dict[str, Any]:
    """The device, the versions and, on a GPU, the rate of a copy that no cache can hold."""
    found: dict[str, Any] = {"device": args.device, "torch": torch.__version__}
    if args.device == "cuda":
        big = laboratory.copy(Workload("copy", (1, 2**14, 2**14), "fp16"))
        found["device"] = torch.cuda.get_device_name()
        found["triton"] = triton_import_error() or version("triton")
        found["copy_gb_per_s"] = round(big.gb_per_s("forward"))
    return found


def run(args: argparse.Namespace) -> None:
    if args.device == "cuda":
        compile_ahead(builds(args), args.jobs)
    laboratory = Laboratory(args.device)
    found = environment(args, laboratory)
    print(", ".join(f"{key} {value}" for key, value in found.items()))
    rows = [row for family in args.family for row in measure(args, laboratory, family)]
    if args.json:
        timings = [t.record(row.copy) for row in rows for t in (row.copy, *row.timings) if t]
        args.json.write_text(json.dumps({**found, "timings": timings}, indent=1) + "\n")
    if args.plots:
        draw_plots(args, laboratory)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if args.device == "cpu":
        run(args)
        return 0
    if not torch.cuda.is_available():
        print("error: no CUDA device here; --device cpu times the CPU", file=sys.stderr)
        return 2
    if args.plots:
        from size_plots import missing

        if missing():
            print(f"error: --plots needs {' and '.join(missing())}", file=sys.stderr)
            return 2
    with torch.cuda.stream(torch.cuda.Stream()):
        run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
