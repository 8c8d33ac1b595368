"""Recipes as modules: their scripts all have one name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import soundfile as sf

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def load_recipe(name: str) -> ModuleType:
    """``recipes/NAME/prepare.py``."""
    folder = RECIPES / name
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"{name}_prepare", folder / "prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_recipe(module: ModuleType, *words: object) -> None:
    """Its work, with these words on the command line, in this process."""
    options = module.parser().parse_args(["--workers", "1", *map(str, words)])
    module.prepare(options)


def contents(root: Path) -> dict[Path, tuple[int, bytes]]:
    """Rate and samples of the wav files below a folder (float files hold the time, too)."""
    found = {}
    for file in root.rglob("*.wav"):
        wav, rate = sf.read(file)
        found[file.relative_to(root)] = rate, (wav + 0.0).tobytes()  # no negative zeros
    return found
