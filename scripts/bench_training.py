"""Train our model and a peer's for the same time by the same recipe; score both on the test set.

    python scripts/bench_training.py --experiment causal --precision bf16-mixed 32-true \
        --models ours asteroid --seconds 210 data=speakers data.root=DIR data.batch_size=16

Everything but the network is the same: data and their order, loss, optimizer, learning rates,
clipping, time. Ours replays CUDA graphs, as training does; the peer goes through torch.compile.
Compilation and validation are not counted. Further arguments are overrides of
``configs/train.yaml``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from convtasnet.cli import Parser, run_main  # noqa: E402
from train import build_system, set_tf32  # noqa: E402

OURS = "ours"
MODELS = {OURS: "convtasnet.ConvTasNet", "asteroid": "peers.AsteroidConvTasNet"}


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--experiment", default="causal", help="an experiment of configs/")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--precision", nargs="+", default=["bf16-mixed"], help="Lightning's names")
    parser.add_argument("--seconds", type=float, default=210.0, help="training time of each")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench_training"))
    parser.add_argument("--compile", default="reduce-overhead", help="of the peer; ours: graph")
    parser.add_argument("--json", type=Path, help="write the table here too")
    parser.add_argument("overrides", nargs="*", help="overrides of the training configuration")
    return parser.parse_intermixed_args()


def run(args: argparse.Namespace, model: str, precision: str) -> dict[str, Any]:
    """Train one model; its row of the table."""
    folder = args.out.absolute() / f"{args.experiment}_{model}_{precision}"
    cfg = compose(
        "train",
        [
            f"experiment={args.experiment}",
            "callbacks=time_budget",
            f"callbacks.time_budget.seconds={args.seconds}",
            "scheduler=constant",
            "logger=none",
            f"compile={'graph' if model == OURS else args.compile}",
            f"model._target_={MODELS[model]}",
            f"trainer.precision={precision}",
            "trainer.max_epochs=-1",
            f"run_dir='{folder}'",
            *args.overrides,
        ],
    )
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    set_tf32(cfg.matmul_precision)
    config = OmegaConf.to_container(cfg, resolve=True)
    system, data = build_system(cfg, config), instantiate(cfg.data)
    budget = instantiate(cfg.callbacks.time_budget)
    trainer = instantiate(
        cfg.trainer,
        callbacks=[budget],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    start = time.perf_counter()
    trainer.fit(system, data)
    wall = time.perf_counter() - start
    steps = trainer.global_step
    folder.mkdir(parents=True, exist_ok=True)
    trainer.save_checkpoint(folder / "last.ckpt", weights_only=True)
    scorer = L.Trainer(logger=False, enable_progress_bar=False, devices=1)
    scores = scorer.validate(system, data.test_dataloader(), verbose=False)[0]
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return {
        "experiment": args.experiment,
        "model": model,
        "precision": precision,
        "steps": steps,
        "ms_per_step": 1e3 * budget.elapsed / max(1, steps - budget.warmup_steps),
        "peak_gib": peak,
        "seconds": budget.elapsed,
        "wall_seconds": wall,
        "si_sdr": scores["valid_si_sdr"],
        "si_sdri": scores["valid_si_sdri"],
    }


def main() -> None:
    args = parse()
    table = Table("experiment", "model", "precision", "steps", "ms/step", "GiB", "SI-SDRi (dB)")
    rows = []
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        for precision in args.precision:
            for model in args.models:
                row = run(args, model, precision)
                rows.append(row)
                print(json.dumps(row), flush=True)
                table.add_row(
                    *(str(row[key]) for key in ("experiment", "model", "precision", "steps")),
                    f"{row['ms_per_step']:.1f}",
                    f"{row['peak_gib']:.1f}",
                    f"{row['si_sdri']:.2f}",
                )
                if args.json:
                    args.json.write_text(json.dumps(rows, indent=2))
    Console().print(table)


if __name__ == "__main__":
    run_main(main)
