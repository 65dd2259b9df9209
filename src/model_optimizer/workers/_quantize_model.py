"""What the quantizing workers that run a model share: quiet libraries, texts, whole weights, the folder."""

import logging
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _contract import blame, fail, progress
from _quantize_data import Calibration, read_calibration
from _quantize_source import Source, copy_beside, read_source, reasons


def begin(request: Mapping[str, Any], tool: str) -> tuple[Source, Calibration]:
    """Refuse a broken checkpoint before anything large is imported, then get libraries and texts ready."""
    source = read_source(request)
    for line in reasons(source):
        progress(line)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("LLM_COMPRESSOR_LOG_LEVEL", "WARNING")
    progress(f"loading {tool}", 0.0)
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.folder)
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(
            error, "tokenizer", f"the tokenizer of `{source.folder.name}` cannot be loaded", ["copy it again"]
        )
    data = read_calibration(tokenizer, request["calibration"], request["task"])
    progress("loading the model", 0.02)
    return source, data


def require_finite(model: Any) -> None:
    """A sum that is finite has no term that is not, and is made without a copy of the weights."""
    import torch

    for tensor, values in model.named_parameters():
        if torch.isfinite(values.sum(dtype=torch.float32)) or torch.isfinite(values).all():
            continue
        fail(
            "broken-checkpoint",
            f"`{tensor}` holds numbers that are not finite",
            hint=["the checkpoint is damaged or its training diverged: take another one"],
        )


def settle(out: Path, source: Source) -> None:
    """What a library wrote beside the weights that is not the model's own goes; what is, comes."""
    (out / "recipe.yaml").unlink(missing_ok=True)
    copy_beside(source.folder, out)
    for path in out.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
