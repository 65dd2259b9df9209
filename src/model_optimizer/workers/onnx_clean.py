"""Clean a graph up with onnxslim, and keep the result only when it computes the same.

Request: {source, out}. `out` gets model.onnx, mopt.json and the files beside it. onnxslim drops the names of
modules that the exporter wrote on nodes; they are put back by the names of values, which survive. A result
that differs from the original by more than rounding, or that cannot be loaded, is dropped: `out` then gets
the original graph. Result: {versions, notes, before, after, kept}.
"""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import TOKENIZER_FILES, copy_files
from _contract import Failure, brief, main, progress
from _onnx_feeds import distance, read_facts, samples
from _onnx_file import SCOPES, check_onnx, save_graph

TOLERANCE = 1e-5
CLASSES = "pkg.torch.onnx.class_hierarchy"


def job(request: dict[str, Any]) -> dict[str, Any]:
    import onnx

    source, out = Path(request["source"]), Path(request["out"])
    facts = read_facts(source)
    progress("reading the graph", 0.0)
    check_onnx(source / "model.onnx")
    model = onnx.load(str(source / "model.onnx"))
    before = len(model.graph.node)
    names = module_names(model)
    because = None
    try:
        progress("cleaning up", 0.2)
        slim(model, out / "model.onnx", names)
        progress("comparing with the graph before", 0.6)
        apart = distance(
            source / "model.onnx", out / "model.onnx", samples(source, facts, request.get("texts") or ())
        )
        if not apart.largest <= TOLERANCE:
            because = f"it differs by {apart.largest:.1e} of the largest number in `{apart.output}`"
    except Failure as failure:
        because = f"{failure.message}: {'; '.join(failure.cause)}"
    except Exception as error:  # noqa: BLE001 - a step that can be left out may fail in any way
        because = brief(error)
    if because is not None:
        for path in out.iterdir():
            path.unlink()
        copy_files(source, out, ("model.onnx", "model.onnx.data"))
    after = len(onnx.load(str(out / "model.onnx"), load_external_data=False).graph.node)
    copy_files(source, out, ("config.json", "preprocessor_config.json", *TOKENIZER_FILES))
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    said = (
        f"cleaned up: {before} nodes became {after}, the same answers"
        if because is None
        else f"the clean-up was dropped: {because}"
    )
    return {
        "versions": {name: importlib.metadata.version(name) for name in ("onnxslim", "onnx", "onnxruntime")},
        "before": before,
        "after": after,
        "kept": because is None,
        "notes": [said],
    }


def slim(model: Any, path: Path, names: dict[str, dict[str, str]]) -> None:
    """Free dimensions and names of inputs and outputs stay."""
    import onnxslim

    found = onnxslim.slim(model)
    for node in found.graph.node:
        kept = next((names[value] for value in node.output if value in names), {})
        for key, value in kept.items():
            if not any(prop.key == key for prop in node.metadata_props):
                node.metadata_props.add(key=key, value=value)
    save_graph(found, path)


def module_names(model: Any) -> dict[str, dict[str, str]]:
    """For each value, what the exporter wrote on the node that makes it."""
    found: dict[str, dict[str, str]] = {}
    for node in model.graph.node:
        kept = {prop.key: prop.value for prop in node.metadata_props if prop.key in (SCOPES, CLASSES)}
        found |= dict.fromkeys(node.output, kept)
    return found


if __name__ == "__main__":
    main(job)
