"""Models for other runtimes: torch.export and ONNX.

ONNX needs the extra ``export``: onnx, onnxscript and onnxruntime.
"""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def require_onnx() -> None:
    """Raise a ValueError that says what to install, where ONNX's packages are missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ValueError(
            f"ONNX needs {', '.join(missing)}, not installed here: pip install 'convtasnet[export]'"
        )
