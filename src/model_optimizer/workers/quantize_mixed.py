"""Choose a format for each layer under a budget of bits, by NVIDIA ModelOpt's auto_quantize.

Request: {source, out, scheme, task, formats, bits, exclude, calibration, work}. `formats` are names of
ModelOpt's configurations, `bits` the budget: bits a weight, on average over what may be quantized. The scores
of layers, which take most of the time, lie in the folder `work` until the end, so that a job that was killed
goes on there. ModelOpt rounds to NVFP4 with a CUDA kernel; without a GPU, scoring rounds in plain torch.

Result: {versions, notes, weights}.
"""

import importlib.metadata
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
import _fp4
from _checkpoint import require_loaded
from _contract import blame, fail, main, progress
from _quantize_data import Calibration
from _quantize_model import begin, require_finite, settle
from _quantize_source import Source, parameters, reasons, write_about

PACKAGES = ("nvidia-modelopt", "torch", "transformers")
SCORED = 128
"""Samples that layers are scored on, at most: ModelOpt's own default."""


def job(request: dict[str, Any]) -> dict[str, Any]:
    source, data = begin(request, "ModelOpt")
    model = load(source)
    chosen = choose(model, source, request, data)
    progress("writing the folder", 0.9)
    out = Path(request["out"])
    export(model, out)
    settle(out, source)
    counts = Counter(chosen.values())
    weights = {
        "quantized": sum(count for name, count in counts.items() if name != "16 bits"),
        "parameters": parameters(source.quantized),
        "bits": request["bits"],
        "layers": dict(sorted(counts.items())),
    }
    write_about(out, request, {"weights": weights, "chosen": chosen, "calibration": data.digest})
    said = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "weights": weights,
        "notes": [
            f"choices for a budget of {request['bits']:g} bits: {said}",
            *data.notes,
            *reasons(source),
            *source.notes,
        ],
    }


def load(source: Source) -> Any:
    import transformers

    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            source.folder, dtype="auto", output_loading_info=True
        )
        require_loaded(sorted(info["missing_keys"]), unused=r"(^|\.)lm_head(\.|$)")
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(error, "broken-checkpoint", "transformers cannot load the checkpoint")
    require_finite(model)
    return model.eval().to(device())


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def choose(model: Any, source: Source, request: dict[str, Any], data: Calibration) -> dict[str, str]:
    """The format of each group of layers; the model is quantized so."""
    import modelopt.torch.quantization as mtq
    import torch

    rows = [{"input_ids": torch.tensor([ids], device=device())} for ids in data.ids]
    work = Path(request["work"])
    work.mkdir(parents=True, exist_ok=True)
    state = work / "scores.pt"
    progress("going on with the scores of an earlier try" if state.exists() else "scoring layers", 0.05)
    if device() == "cpu":
        round_on_cpu()
    left = [name for name in source.left if "embed" not in name]
    try:
        _model, found = mtq.auto_quantize(
            model,
            constraints={
                "effective_bits": float(request["bits"]),
                "cost": {"excluded_module_name_patterns": ["*lm_head*", *left]},
            },
            quantization_formats=[getattr(mtq, name) for name in request["formats"]],
            data_loader=rows,
            forward_step=lambda model, batch: model(**batch, labels=batch["input_ids"]),
            loss_func=lambda output, _batch: output.loss,
            disabled_layers=["*lm_head*", *left, *request.get("exclude", ())],
            num_calib_steps=len(rows),
            num_score_steps=min(len(rows), SCORED),
            checkpoint=str(state),
        )
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(error, "quantization-failed", "ModelOpt found no choice of formats")
    return {str(name): _name(value) for name, value in found["best"]["recipe"].items()}


def round_on_cpu() -> None:
    """Let ModelOpt's operator for blocks of FP4 with FP8 scales work without CUDA. Only scores use it."""
    from modelopt.torch.quantization import tensor_quant

    def rounded(
        inputs: Any,
        block_size: int,
        amax: Any,
        bits: int,
        exponent: int,
        scale_bits: int,
        _scale_exponent: int,
    ) -> Any:
        if (bits, exponent, scale_bits) != (4, 2, 8):
            fail("quantization-failed", f"no rounding to {bits}-bit blocks without a GPU")
        highest = inputs.abs().amax() if amax is None else amax.float().amax()
        whole = (highest / (_fp4.LARGEST * _fp4.LARGEST_FP8)).clamp(min=1e-30)
        return _fp4.rounded(inputs, whole, block_size).to(inputs.dtype)

    tensor_quant.dynamic_block_quantize_op = rounded


def _name(recipe: Any) -> str:
    text = str(recipe)
    known = {"NVFP4": "NVFP4", "FP8": "FP8", "NONE": "16 bits"}
    return next((word for kind, word in known.items() if kind in text.upper()), text[:40])


def export(model: Any, out: Path) -> None:
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    try:
        with torch.inference_mode():
            export_hf_checkpoint(model, export_dir=out)
    except Exception as error:  # noqa: BLE001 - a library's failure, in one line
        blame(error, "quantization-failed", "ModelOpt cannot write this model")
    if not json.loads((out / "config.json").read_text(encoding="utf-8")).get("quantization_config"):
        fail("quantization-failed", "ModelOpt wrote a checkpoint that does not say how it is quantized")


if __name__ == "__main__":
    main(job)
