r"""Export a model, and verify it on the spot against PyTorch.

    python scripts/export.py --checkpoint best.ckpt --out model.onnx
    python scripts/export.py --out stream.onnx --streaming --block-ms 10
    python scripts/export.py --out stream.onnx --streaming --int8
    python scripts/export.py --out model.pt2

Exports the model that comes with the package, or --checkpoint: what separate.py takes.

The ending of --out says what it becomes: ".onnx" an ONNX file for whole recordings or, with
--streaming, for blocks of a stream with its state as tensors (causal models only); ".pt2" a program
of torch.export. ONNX needs the extra "export": pip install 'convtasnet[export]'. docs/export.md
shows how the files are run, without PyTorch.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch

from convtasnet.cli import Parser, run_main
from convtasnet.export import require_onnx
from convtasnet.export.program import export_program
from convtasnet.files import replacing
from convtasnet.model import ConvTasNet
from convtasnet.shipped import shipped_model
from convtasnet.streaming.folded import fold
from convtasnet.streaming.separator import decay_of

ENDINGS = (".onnx", ".pt2")
LONGEST_MS = 1000  # a step holds maps of all its frames


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--checkpoint", metavar="X", help="default: the model that comes with the package")
    add("--out", type=Path, required=True, metavar="FILE", help="ends in .onnx or .pt2")
    add("--streaming", action="store_true", help="ONNX for blocks of a stream")
    add("--block-ms", type=float, metavar="MS", help="longest block, up to 1000 (default: 10)")
    add("--half-life", type=float, metavar="S", help="seconds, see docs/streaming.md")
    add("--int8", action="store_true", help="products of 8-bit integers: faster, less exact")
    args = parser.parse_args()
    check(args)
    return args


def check(args: argparse.Namespace) -> None:
    """Refuse what does not fit together."""
    if args.out.suffix not in ENDINGS:
        raise ValueError(f"--out {args.out}: the name must end in {' or '.join(ENDINGS)}")
    if args.streaming and args.out.suffix != ".onnx":
        raise ValueError(f"--out {args.out}: --streaming makes an .onnx file")
    for option in ("block_ms", "half_life", "int8"):
        if getattr(args, option) not in (None, False) and not args.streaming:
            raise ValueError(f"--{option.replace('_', '-')} is for --streaming")
    if args.block_ms is not None and not 0 < args.block_ms <= LONGEST_MS:
        raise ValueError(f"--block-ms {args.block_ms:g}: must be above 0, at most {LONGEST_MS}")
    if args.out.suffix == ".onnx":
        require_onnx()


def export(args: argparse.Namespace) -> str:
    """Write the file; gives what is to be said of it."""
    model = ConvTasNet.from_pretrained(args.checkpoint or shipped_model())
    if args.streaming:
        return export_streaming(model, args)
    if args.out.suffix == ".pt2":
        return export_pt2(model, args.out)
    from convtasnet.export.offline import offline_onnx
    from convtasnet.export.verify_onnx import check_offline

    # Warns that torchvision, which no separator needs, is not installed.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    content = offline_onnx(model).SerializeToString()
    error = check_offline(model, content)
    write(args.out, content)
    return f"mixture (batch, samples) -> voices (batch, {model.n_src}, samples), {agrees(error)}"


def export_pt2(model: ConvTasNet, out: Path) -> str:
    from convtasnet.export.verify import check_program

    program = export_program(model)
    error = check_program(model, program)
    with replacing(out) as temporary:
        torch.export.save(program, temporary)
    return f"(batch, samples) -> (batch, {model.n_src}, samples), {agrees(error)}"


def export_streaming(model: ConvTasNet, args: argparse.Namespace) -> str:
    from convtasnet.export.streaming_graph import streaming_graph
    from convtasnet.export.verify_onnx import check_streaming, int8_noise

    milliseconds = 10.0 if args.block_ms is None else args.block_ms
    frames = round(milliseconds * model.sample_rate / model.stride / 1000)
    if frames < 1:
        raise ValueError(
            f"--block-ms {milliseconds:g} is less than a frame of {model.stride} samples"
        )
    decay = decay_of(model, args.half_life)
    content = streaming_graph(fold(model), frames, decay, args.int8).SerializeToString()
    if args.int8:
        noise = int8_noise(model, content, args.half_life)
        said = f"8 bits add noise {noise:.1f} dB below the voices"
    else:
        said = agrees(check_streaming(model, content, args.half_life))
    write(args.out, content)
    return f"steps of up to {frames} frames, {frames * model.stride} samples, {said}"


def agrees(error: float) -> str:
    return f"equal to PyTorch up to {error:.0e} of the peak"


def write(out: Path, content: bytes) -> None:
    with replacing(out) as temporary:
        temporary.write_bytes(content)


def run() -> None:
    args = parse()
    said = export(args)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, {said}")


if __name__ == "__main__":
    run_main(run)
