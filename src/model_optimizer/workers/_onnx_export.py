"""What every export has in common: the call of PyTorch's exporter, only metadata that names modules, weights
beside the graph, names that are unique.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _contract import fail, progress
from _onnx_refused import refuse

KEPT_METADATA = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy")


def export_graph(
    module: Any,
    path: Path,
    example: Mapping[str, Any] | tuple[Any, ...],
    free: Any,
    *,
    opset: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    """Write model.onnx with the `free` dimensions of the example."""
    import torch

    require_numbers(module)
    named = isinstance(example, Mapping)
    try:
        with torch.no_grad():
            program = torch.onnx.export(
                module,
                () if named else example,
                kwargs=dict(example) if named else None,
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=free,
                input_names=list(inputs),
                output_names=list(outputs),
                verbose=False,
            )
    except Exception as error:  # noqa: BLE001 - the exporter raises whatever the model's code meets
        refuse(error, module, example, free)
    finish_graph(program, path)


def require_numbers(module: Any) -> None:
    """Weights that are no numbers make every answer none, before and after: nothing could be compared."""
    import torch

    for name, weight in module.named_parameters():
        if count := int((~torch.isfinite(weight)).sum()):
            fail(
                "broken-artifact",
                "the checkpoint has weights that are no numbers",
                [f"{count:,} of {weight.numel():,} numbers of `{name}` are infinite or NaN"],
                ["take a checkpoint from before the training went wrong"],
            )


def finish_graph(program: Any, path: Path) -> None:
    """Write model.onnx and its data. Weights beside the graph: half the memory, and any size."""
    if program is None:
        fail("export-failed", "the exporter returned nothing")
    for node in program.model.graph.all_nodes():
        for key in [k for k in node.metadata_props if k not in KEPT_METADATA]:
            del node.metadata_props[key]
    progress("writing the graph", 0.75)
    separate(program.model.graph)
    program.save(str(path), external_data=True)


def separate(graph: Any) -> None:
    """Give inner values that are called like an output another name: two of one name are no valid graph.

    Seen with an output called `embedding` in a model whose table makes a value of that name.
    """
    outputs = {id(value): value.name for value in graph.outputs}
    for node in graph.all_nodes():
        for value in node.outputs:
            if id(value) not in outputs and value.name in outputs.values():
                value.name = f"{value.name}_inner"


def require_unique(path: Path, inputs: Mapping[str, Sequence[Any]]) -> None:
    """Check the file, and give the free dimensions of its inputs the names that servers and builders know."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    twice = [n for n, k in Counter(v for node in model.graph.node for v in node.output if v).items() if k > 1]
    if twice:
        fail("export-failed", f"the exported graph has two values called `{twice[0]}`")
    for value in model.graph.input:
        for dim, wanted in zip(value.type.tensor_type.shape.dim, inputs.get(value.name, ()), strict=False):
            if not isinstance(wanted, str):
                continue
            if dim.HasField("dim_value"):
                fail(
                    "export-failed",
                    f"the exporter fixed `{wanted}` of `{value.name}` to the example's size",
                    [f"{dim.dim_value} in the graph"],
                    ["the model computes with this size as a number: it cannot be free"],
                )
            dim.dim_param = wanted
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))
