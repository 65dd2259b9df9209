"""Why PyTorch's exporter refused a model: the operator or the branch, its modules, and what helps."""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

from _contract import blame, brief, fail

MISSING = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
DEPENDENT = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "UserError")
BRANCH = (
    "the exporter follows one road for every input: choose with torch.where, and mask whole tensors instead "
    "of cutting them to a size that depends on their numbers"
)
REWRITES = {
    r"aten\._?linalg|aten\.(svd|qr|cholesky|inverse|lu|eig)": (
        "ONNX has no linear algebra beyond products: compute it once before the export where it depends on "
        "weights alone, else outside of the model"
    ),
    r"aten\.(_?fft|stft|istft)": (
        "write the transform as a product with its matrix, or compute it outside of the model"
    ),
    r"aten\..*": "write this module with simpler operators of PyTorch",
    r".*": (
        "an operator of your own: write it with those of PyTorch, or export with `torch.onnx.export(..., "
        "custom_translation_table=...)` yourself and name the .onnx file"
    ),
}
"""What helps, by the beginning of an operator's name; the first that fits."""


def refuse(error: Exception, module: Any, example: Any, free: Any) -> NoReturn:
    """Fail with what is to be changed in the model. `module` was exported with `example` and `free` sizes."""
    import torch

    chain = list(_chain(error))
    said = "\n".join(str(one) for one in chain)
    if operators := sorted(set(MISSING.findall(said))):
        places = _modules_of(operators, module, example, free)
        fail(
            "unsupported-operator",
            f"PyTorch {torch.__version__} has no ONNX operators for {', '.join(operators)}",
            [f"{name}{_from(places.get(name, ()))}" for name in operators],
            list(dict.fromkeys(_rewrite(name) for name in operators)),
        )
    last = chain[-1]
    if type(last).__name__ in DEPENDENT or "data-dependent" in str(last):
        fail(
            "export-failed",
            "the model decides by the numbers it is given, which a graph cannot",
            [brief(last), *_place(last, module)],
            [BRANCH],
        )
    blame(last, "export-failed", f"PyTorch {torch.__version__} cannot export this model to ONNX")


def _chain(error: BaseException | None) -> Iterator[Exception]:
    """An error and what caused it, the first cause last."""
    while isinstance(error, Exception):
        yield error
        error = error.__cause__


def _modules_of(operators: list[str], module: Any, example: Any, free: Any) -> dict[str, list[str]]:
    """The modules whose code calls each operator; none where the model cannot be traced once more."""
    import torch

    named = isinstance(example, dict)
    found: dict[str, list[str]] = {}
    try:
        program = torch.export.export(
            module,
            () if named else example,
            kwargs=dict(example) if named else None,
            dynamic_shapes=free,
            strict=False,
        ).run_decompositions()
    except Exception:  # noqa: BLE001 - it only tells where; what failed is known
        return found
    for node in program.graph.nodes:
        name = str(node.target).removesuffix(".default")
        if name in operators:
            stack = [str(path) for path, _kind in (node.meta.get("nn_module_stack") or {}).values()]
            place = stack[-1] if stack else ""
            if place and place not in found.setdefault(name, []):
                found[name].append(place)
    return found


def _place(error: Exception, module: Any) -> list[str]:
    """The innermost module of the model whose code was running, and the line."""
    names = {id(part): name for name, part in module.named_modules()}
    step, found = error.__traceback__, ""
    while step is not None:
        code = step.tb_frame.f_code
        name = names.get(id(step.tb_frame.f_locals.get("self"))) if code.co_name == "forward" else None
        if name:
            file = code.co_filename.rpartition("/")[2]
            found = f"in `{name}`, {file}:{step.tb_lineno}"
        step = step.tb_next
    return [found] if found else []


def _from(places: Any) -> str:
    return f" from {', '.join(places[:3])}{' ...' if len(places) > 3 else ''}" if places else ""


def _rewrite(operator: str) -> str:
    return next(text for pattern, text in REWRITES.items() if re.match(pattern, operator))
