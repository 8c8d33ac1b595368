"""Every shipped configuration composes, builds what it names and changes what it says."""

from __future__ import annotations

import inspect

import lightning as L
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch.optim import Optimizer
from training import CONFIGS, composed, script

from convtasnet import ConvTasNet
from convtasnet.data.module import MixtureData
from convtasnet.data.stored import DATA_SETS
from convtasnet.system import MONITORS

SMALL = ("experiment=smoke", "data=manifest", "data.root=/nowhere", "run_dir=/nowhere/run")
# Arguments of Lightning's Trainer that are set by other means: two groups, the run folder, and
# uploads to a company's service.
TRAINER_ELSEWHERE = {"callbacks", "logger", "default_root_dir", "model_registry"}


def options(group):
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml") if path.stem != "base")


def everything(group):
    return [(group, option) for option in options(group)]


GROUPS = sorted(p.name for p in CONFIGS.iterdir() if p.is_dir() and p.name != "hydra")


def build(cfg):
    """Build all that a training run builds; nothing on the disk is read or written."""
    config = OmegaConf.to_container(cfg, resolve=True)
    data = instantiate(cfg.data)
    system = script.build_system(cfg, config)
    trainer = script.build_trainer(cfg)
    assert isinstance(data, MixtureData)
    assert isinstance(trainer, L.Trainer)
    assert trainer.checkpoint_callback.monitor == cfg.monitor
    optimizers = system.configure_optimizers()
    optimizer = optimizers["optimizer"]
    assert isinstance(optimizer, Optimizer)
    assert optimizer.param_groups[0]["lr"] == cfg.optimizer.lr
    assert callable(system.loss)
    return data, system, trainer


def leaves(node, path=""):
    for key, value in node.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


@pytest.mark.parametrize("name", options("experiment"))
def test_an_experiment_changes_what_it_says(name):
    text = (CONFIGS / "experiment" / f"{name}.yaml").read_text()
    assert text.startswith("# @package _global_\n"), "without it, it would change nothing"
    said = yaml.safe_load(text)
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        full = compose("train", [f"experiment={name}"], return_hydra_config=True)
    for entry in said.pop("defaults", []):
        ((group, option),) = entry.items()
        assert full.hydra.runtime.choices[group.removeprefix("override /")] == option
    for key, value in leaves(said):
        assert OmegaConf.select(full, key, throw_on_missing=True) == value, key


@pytest.mark.parametrize("name", options("experiment"))
def test_an_experiment_builds(name):
    cfg = composed(f"experiment={name}", "run_dir=/nowhere/run")
    data, system, _ = build(cfg)
    assert system.model.causal is (name != "noncausal")
    assert system.model.hparams["norm"] == ("global" if name == "noncausal" else "cumulative")
    assert data.segment == cfg.data.segment
    assert cfg.data._target_.endswith("DemoData"), "with no data named, the embedded default"


def test_the_experiments_of_the_paper_have_its_size():
    for name in ("causal", "noncausal"):
        model = instantiate(composed(f"experiment={name}", "run_dir=/nowhere").model)
        assert sum(p.numel() for p in model.parameters()) == 4_984_881


@pytest.mark.parametrize(
    ("group", "option"), [pair for group in GROUPS for pair in everything(group)]
)
def test_every_option_of_every_group_builds(group, option):
    overrides = [*SMALL, f"{group}={option}"]
    if group == "norm":
        overrides.append(f"model.causal={option != 'global'}")
    if group == "experiment":  # instead of the one in SMALL
        overrides = [item for item in overrides if item != SMALL[0]]
    if group == "data":
        overrides.remove("data=manifest")
    build(composed(*overrides))


@pytest.mark.parametrize("data", options("data"))
def test_data_options_share_their_names_and_the_model_follows_them(data):
    overrides = ["data.root=/nowhere", "data.sample_rate=16000", "data.n_src=3", "data.segment=2.5"]
    cfg = composed(f"data={data}", *overrides, "run_dir=/nowhere")
    module, model = instantiate(cfg.data), instantiate(cfg.model)
    assert isinstance(model, ConvTasNet)
    for built in (module, model):
        assert (built.sample_rate, built.n_src) == (16000, 3)
    assert module.segment == 2.5


@pytest.mark.parametrize(
    "choice",
    [f"norm={norm}" for norm in options("norm")]
    + [f"experiment={name} norm=channelwise" for name in options("experiment")],
)
def test_norm_on_the_command_line_reaches_the_model(choice):
    cfg = composed(*choice.split(), "run_dir=/nowhere")
    assert cfg.model.norm == choice.split("=")[-1]


@pytest.mark.parametrize("data", options("data"))
def test_data_on_the_command_line_win_over_the_experiment(data):
    cfg = composed("experiment=smoke", f"data={data}", "data.root=/x", "run_dir=/nowhere")
    alone = composed(f"data={data}", "data.root=/x", "run_dir=/nowhere")
    assert cfg.data._target_ == alone.data._target_
    assert set(cfg.data) == set(alone.data)


def test_every_argument_of_the_trainer_can_be_set():
    signature = set(inspect.signature(L.Trainer.__init__).parameters) - {"self"}
    shipped = set(yaml.safe_load((CONFIGS / "trainer" / "default.yaml").read_text()))
    assert signature - TRAINER_ELSEWHERE == shipped - {"_target_"}


def test_every_argument_of_the_model_can_be_set():
    parameters = inspect.signature(ConvTasNet.__init__).parameters
    shipped = yaml.safe_load((CONFIGS / "model" / "paper.yaml").read_text())
    assert set(parameters) - {"self"} == set(shipped) - {"_target_"}
    for name in set(shipped) - {"_target_", "n_src", "norm", "causal", "sample_rate"}:
        assert shipped[name] == parameters[name].default, name


@pytest.mark.parametrize("monitor", MONITORS)
def test_modes_follow_the_monitor(monitor):
    cfg = composed(*SMALL, "scheduler=plateau", f"monitor={monitor}")
    following = (cfg.scheduler, cfg.callbacks.best_checkpoint, cfg.callbacks.early_stopping)
    assert [node.mode for node in following] == [MONITORS[monitor]] * 3


def test_without_a_logger_nothing_needs_one():
    assert build(composed(*SMALL, "logger=none"))[2].loggers == []


def test_the_time_budget_takes_its_seconds():
    cfg = composed(*SMALL, "callbacks=time_budget", "callbacks.time_budget.seconds=7")
    (budget,) = [c for c in build(cfg)[2].callbacks if hasattr(c, "factor")]
    assert budget.seconds == 7
    assert "early_stopping" in cfg.callbacks
    assert cfg.callbacks.early_stopping is None


def test_every_data_option_can_be_evaluated():
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        for data in options("data"):
            cfg = compose("evaluate", ["checkpoint=x", f"data={data}", "run_dir=/nowhere"])
            assert cfg.data._target_ in DATA_SETS
