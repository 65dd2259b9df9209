"""Export a model of images to ONNX: a classifier of transformers, or YOLOv8 with masks, of free image size.

Request: {source, out, opset}. `out` gets model.onnx, model.onnx.data, config.json and mopt.json. Every answer
of the graph, at batch sizes and image sizes other than the example's, is compared with PyTorch's. Result:
{versions, notes, parity}.
"""

import gc
import importlib.metadata
import json
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import check_weights, copy_files, read_config, read_json, require_loaded
from _contract import brief, fail, main, progress
from _onnx_export import export_graph, require_unique
from _onnx_feeds import apart, open_session, samples

TOLERANCE = 2e-4
PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
INPUT = "pixel_values"
LARGEST_SIDE = 4096


def job(request: dict[str, Any]) -> dict[str, Any]:
    import torch

    warnings.filterwarnings("ignore")
    source, out = Path(request["source"]), Path(request["out"])
    progress("reading the checkpoint", 0.0)
    config = read_config(source)
    check_weights(source)
    segments = config.get("model_type") == "yolo_seg"
    model, size, outputs = load_yolo(source, config) if segments else load_classifier(source, config)
    facts: dict[str, Any] = {
        "schema": "onnx_folder/1",
        "task": "vision",
        "scheme": "fp32",
        "kind": "segment" if segments else "classify",
        "image_size": size,
        "labels": config.get("num_labels") or len(config.get("id2label") or {}) or None,
        "inputs": [{"name": INPUT, "type": "tensor(float)", "shape": input_shape(config, segments, size)}],
        **({"size_step": 32, "pixel_range": [0, 1]} if segments else {}),
    }
    progress("exporting to ONNX", 0.2)
    path = out / "model.onnx"
    export(model, path, segments, size, outputs, request["opset"], facts["inputs"][0]["shape"])
    progress("comparing with the original", 0.8)
    feeds = samples(out, facts)
    worst, session = 0.0, open_session(path)
    for feed in feeds:
        with torch.no_grad():
            right = model(torch.from_numpy(feed[INPUT]))
        right = right if isinstance(right, tuple) else (right,)
        for name, wanted, got in zip(outputs, right, session.run(None, feed), strict=True):
            worst = max(worst, found := apart(wanted.numpy(), got, name).largest)
            if not found <= TOLERANCE:
                fail(
                    "export-differs",
                    "the exported graph does not compute what the model computes",
                    [
                        f"`{name}` of {list(feed[INPUT].shape)}: {found:.2g} of the largest, "
                        f"{TOLERANCE:g} is allowed"
                    ],
                    ["the model may need a newer PyTorch to be exported; please report it"],
                )
    del model
    gc.collect()
    shapes = [" x ".join(map(str, feed[INPUT].shape)) for feed in feeds]
    parity = {"batches": shapes, "largest_difference": worst, "allowed": TOLERANCE}
    facts |= {
        "outputs": [{"name": v.name, "type": v.type, "shape": list(v.shape)} for v in session.get_outputs()],
        "parity": parity,
    }
    copy_files(source, out, ("config.json", "preprocessor_config.json"))
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "parity": parity,
        "notes": [
            f"same as PyTorch in {len(shapes)} batches ({', '.join(shapes)}): largest difference "
            f"{worst:.1e} of the largest number"
        ],
    }


def load_yolo(source: Path, config: dict[str, Any]) -> tuple[Any, int, list[str]]:
    from _yolo_segment import YoloSegment
    from safetensors.torch import load_file

    try:
        model = YoloSegment(config).eval()
        weights = load_file(source / "model.safetensors")
        done = model.load_state_dict(weights, strict=False)
    except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
        fail("unsupported-architecture", "the weights do not fit the network of config.json", [brief(error)])
    require_loaded([k for k in done.missing_keys if not k.endswith("num_batches_tracked")], unused=r"dfl\.")
    return model, int(config.get("image_size") or 640), ["detections", "prototypes"]


def load_classifier(source: Path, config: dict[str, Any]) -> tuple[Any, int, list[str]]:
    import torch
    import transformers

    try:
        found, loaded = transformers.AutoModelForImageClassification.from_pretrained(
            source,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except (ValueError, KeyError, NotImplementedError, ImportError, AttributeError) as error:
        fail(
            "unsupported-architecture",
            f"transformers {transformers.__version__} cannot load this architecture to classify images",
            [brief(error)],
            ["models that bring their own code are refused"],
        )
    require_loaded([k for k in loaded["missing_keys"] if not k.endswith("num_batches_tracked")], unused=r"^$")

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = found

        def forward(self, pixel_values: Any) -> Any:
            return self.model(pixel_values=pixel_values).logits

    return Classifier().eval(), side(source, config), ["class_scores"]


def side(source: Path, config: dict[str, Any]) -> int:
    """What the network is made for: its own image size, else that of the files beside it, else 224."""
    if isinstance(config.get("image_size"), int):
        return config["image_size"]
    beside = source / "preprocessor_config.json"
    size = read_json(beside).get("size") if beside.is_file() else None
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge")
    return size if isinstance(size, int) else 224


def input_shape(config: dict[str, Any], segments: bool, size: int) -> list[Any]:
    channels = int(config.get("num_channels") or 3)
    return ["batch", channels, "height", "width"] if segments else ["batch", channels, size, size]


def export(
    model: Any, path: Path, segments: bool, size: int, outputs: list[str], opset: int, shape: list[Any]
) -> None:
    """An example of two images, so that one is not taken for a fixed size."""
    import torch

    free: dict[int, Any] = {0: torch.export.Dim("batch")}
    height, width = (size, size)
    if segments:
        # Height and width are multiples of 32 that differ, so that neither is taken for the other.
        height, width = 64, 96
        free |= {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    example = torch.rand(2, shape[1], height, width)
    export_graph(model, path, (example,), (free,), opset=opset, inputs=[INPUT], outputs=outputs)
    require_unique(path, {INPUT: shape})


if __name__ == "__main__":
    main(job)
