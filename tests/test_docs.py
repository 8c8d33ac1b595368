"""The documents say what is so: their code runs, their commands, settings, tables, links exist."""

from __future__ import annotations

import inspect
import itertools
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from documents import (
    DOCUMENTS,
    GUIDES,
    ROOT,
    Block,
    anchors,
    blocks,
    commands,
    inline_code,
    links,
    prose,
    table_rows,
)
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from tiny_corpus import RATE, voice, write_corpus
from tiny_model import write_checkpoint
from training import CONFIGS

from convtasnet import ConvTasNet
from convtasnet.audio import write_audio
from convtasnet.callbacks.metrics_file import COLUMNS
from convtasnet.cli import main as convtasnet_main
from convtasnet.metrics import METRICS, value_names

CODE = [block for document in DOCUMENTS for block in blocks(document, "python run")]
SHELL = [block for document in DOCUMENTS for block in blocks(document, "bash")]
DOCS = ROOT / "docs"
HYDRA_SCRIPTS = {"train.py": "train", "scripts/evaluate.py": "evaluate"}
HYDRA_FLAGS = ("-m", "--multirun", "--help", "--cfg", "job")
# An override, or a key that one can set, in running text.
SETTING = re.compile(r"\+?(?:[a-z_]+)(?:\.[a-z_]+)*=[^\s\"'()…]+")
KEY = re.compile(r"(?:data|callbacks|trainer|optimizer|scheduler|hydra)(?:\.[a-z_]+)+")


def composed(name: str, overrides: list[str]) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, [*overrides, "run_dir=RUN"])


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples open: best.ckpt, mixture.wav and a manifest, mixtures/."""
    folder = tmp_path_factory.mktemp("workplace")
    write_checkpoint(folder / "best.ckpt", norm="cumulative", causal=True)
    write_audio(folder / "mixture.wav", voice(0, 1.0).clamp(-1, 1), RATE)
    write_corpus(folder / "mixtures", {"train": 8, "valid": 2, "test": 2})
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("block", CODE, ids=str)
def test_examples_run(block: Block, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    exec(compile(block.text, str(block), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_exist(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for program, *arguments in commands(block):
        check_command(Path(program).name, arguments, capsys)


def check_command(program: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a command names files, targets, extras, options and settings that exist."""
    if program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets)
    elif program == "pip":
        extras = re.search(r"\[(.*)\]", arguments[-1])
        assert extras, arguments
        known = metadata("convtasnet").get_all("Provides-Extra")
        assert set(extras[1].split(",")) <= set(known or [])
    elif program == "convtasnet":
        check_options(arguments, convtasnet_main, capsys)
    elif program == "source":
        assert arguments == [".venv/bin/activate"]
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in arguments if "/" in word)
    else:
        assert program == "python"
        check_python(arguments, capsys)


def check_python(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    script, *rest = arguments
    if script == "-m":
        assert find_spec(rest[0])
    elif script in HYDRA_SCRIPTS:
        for overrides in jobs([word for word in rest if word not in HYDRA_FLAGS]):
            check_settings(HYDRA_SCRIPTS[script], overrides)
    else:
        path = str(ROOT / script)

        def run(arguments: list[str]) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", [path, *arguments])
                patch.syspath_prepend(Path(path).parent)  # as Python does for a script
                runpy.run_path(path, run_name="__main__")

        check_options(rest, run, capsys)


def check_options(
    arguments: list[str],
    run: Callable[[list[str]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every --option is in the command's help."""
    command = ["separate", "--help"] if arguments[:1] == ["separate"] else ["--help"]
    with pytest.raises(SystemExit) as stop:
        run(command)
    assert stop.value.code == 0
    known = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    assert {word for word in arguments if word.startswith("--")} <= known


def jobs(overrides: list[str]) -> list[list[str]]:
    """The overrides of each job of a sweep, or of the one."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    choices = [
        [f"{item.get_key_element()}={value}" for value in item.sweep_string_iterator()]
        if item.is_sweep_override()
        else [str(item.input_line)]
        for item in parsed
    ]
    return [list(job) for job in itertools.product(*choices)]


def check_settings(name: str, overrides: list[str]) -> None:
    """The configuration composes, and for training its parts can be built."""
    cfg = composed(name, overrides)
    if name == "train":
        OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        data = instantiate(cfg.data)
        with torch.device("meta"):
            model = instantiate(cfg.model)
        assert (data.n_src, data.sample_rate) == (model.n_src, model.sample_rate)
        for group in ("loss", "optimizer", "scheduler"):
            assert callable(instantiate(cfg[group]))
    else:
        assert cfg.checkpoint or cfg.baseline


@pytest.fixture(scope="module")
def keys() -> set[str]:
    """All that can be set, as ``a.b.c``, by training and evaluation on any data."""
    contexts = [("train", [f"data={path.stem}"]) for path in (CONFIGS / "data").glob("*.yaml")]
    contexts += [("train", ["callbacks=time_budget"]), ("evaluate", [])]
    found: set[str] = set()
    for name, overrides in contexts:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose(name, overrides, return_hydra_config=True)
        found |= set(dotted(OmegaConf.to_container(cfg)))
    return found


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")


@pytest.mark.parametrize("document", GUIDES, ids=lambda path: path.name)
def test_settings_in_the_text_exist(document: Path, keys: set[str]) -> None:
    roots = {key for key in keys if "." not in key}
    for code in inline_code(document):
        key, _, value = code.removeprefix("+").partition("=")
        if not (SETTING.fullmatch(code) or KEY.fullmatch(code)) or key.split(".")[0] not in roots:
            continue
        if (CONFIGS / key).is_dir() and value:
            assert (CONFIGS / key / f"{value}.yaml").is_file(), code
        else:
            assert key in keys, code


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        if not link.startswith("http"):
            name, _, anchor = link.partition("#")
            target = (document.parent / name).resolve() if name else document
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_groups_are_all_listed() -> None:
    rows = {row[0].strip("`"): row[1] for row in table_rows(DOCS / "training.md") if len(row) == 2}
    for group in (path.name for path in CONFIGS.iterdir() if path.is_dir()):
        if group != "hydra":
            options = {path.stem for path in (CONFIGS / group).glob("*.yaml")} - {"base"}
            assert set(re.findall(r"`(\w+)`", rows[group])) == options, group


def test_an_experiment_of_ones_own(tmp_path: Path) -> None:
    (example,) = blocks(DOCS / "training.md", "yaml")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(example.text)
    overrides = [f"hydra.searchpath=['file://{tmp_path}']", "experiment=mine"]
    cfg = composed("train", overrides)
    assert (cfg.norm.name, cfg.model.n_repeats, cfg.optimizer.lr) == ("channelwise", 2, 5e-4)


def test_arguments_of_the_model() -> None:
    parameters = inspect.signature(ConvTasNet).parameters
    rows = [row for row in table_rows(DOCS / "model.md") if len(row) == 4]
    told: dict[str, str] = {}
    for row in rows:  # the first table
        told.setdefault(row[0].strip("`"), row[2].strip("`").strip('"'))
    assert {name: told.get(name) for name in parameters} == {
        name: str(parameter.default) for name, parameter in parameters.items()
    }


@pytest.mark.parametrize(
    ("document", "names", "files"),
    [
        ("data.md", r"data\.(\w+)", ["data/base.yaml", "data/speakers.yaml"]),
        ("evaluation.md", r"(\w+)", ["evaluate.yaml"]),
    ],
)
def test_defaults_of_settings(document: str, names: str, files: list[str]) -> None:
    defaults: dict[str, Any] = {}
    for file in files:
        defaults |= yaml.safe_load((CONFIGS / file).read_text())
    checked = 0
    for row in table_rows(DOCS / document):
        for name in re.findall(f"`{names}`", row[0]):
            if len(row) == 3 and name in defaults and name != "root":
                assert yaml.safe_load(row[1].strip("`")) == defaults[name], name
                checked += 1
    assert checked >= 6


def test_columns_are_explained() -> None:
    for document, names in (
        ("training.md", COLUMNS),
        ("evaluation.md", ["mixture_id", "n_samples", "reasons", *value_names(list(METRICS))]),
    ):
        assert set(names) <= inline_code(DOCS / document)


def test_no_document_names_this_machine() -> None:
    for document in DOCUMENTS:
        assert str(ROOT) not in document.read_text(encoding="utf-8")
        assert "TODO" not in prose(document)
