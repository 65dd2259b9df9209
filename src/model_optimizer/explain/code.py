"""Python that is pasted as it is: exports to ONNX with arguments of old releases."""

import ast
import re

from model_optimizer.core.explanation import Explanation, Point

from . import text
from .question import Question

SOURCE = "torch 2.8, 2.9 and 2.14, torch/onnx/__init__.py"
_CALL = re.compile(r"torch\.onnx\.(?:dynamo_)?export\s*\(")


def explain(thing: str, question: Question) -> Explanation | None:
    """The call with today's arguments; None when the text is no such call."""
    found = _CALL.search(thing)
    if found is None and not re.search(r"\bdynamic_axes\b", thing):
        return None
    call = _parsed(thing[found.start() :]) if found else None
    if call is None:
        return _without_call(thing, question)
    words = {k.arg: k.value for k in call.keywords if k.arg}
    points = _points(call, words)
    today = (_rewritten(call, words), _kept(call, words)) if "dynamic_axes" in words else (ast.unparse(call),)
    return Explanation(
        asked=text.masked(thing)[:500],
        kind="code",
        title="an export to ONNX with torch.onnx.export",
        means=(_SINCE,),
        points=tuple(points),
        today=tuple(dict.fromkeys(today)),
        today_for="torch 2.9 and later: the new exporter, or the old one by name",
        do=("mopt convert MODEL --to onnxruntime exports, cleans and verifies",),
        source=(SOURCE,),
    )


_SINCE = (
    "Since torch 2.9 the exporter that traces with torch.export is the default (dynamo=True, opset 20): it "
    "takes dynamic_shapes, keyed by the arguments of forward."
)


def _without_call(thing: str, question: Question) -> Explanation:
    del question
    return Explanation(
        asked=text.masked(thing)[:500],
        kind="code",
        title="dynamic_axes of torch.onnx.export",
        means=(
            _SINCE,
            "dynamic_axes belongs to the old exporter: names of inputs and outputs, each with its open axes.",
        ),
        points=(Point(about="dynamic_axes", level="changed", says=_AXES, source=SOURCE),),
        today=(
            'torch.onnx.export(model, args, "m.onnx", dynamic_shapes={"x": {0: torch.export.Dim("batch")}})',
            'torch.onnx.export(model, args, "m.onnx", dynamo=False, dynamic_axes={"x": {0: "batch"}})',
        ),
        today_for="torch 2.9 and later: the new exporter, or the old one by name",
        source=(SOURCE,),
    )


_AXES = (
    "with the new exporter it is translated at best, with a warning; outputs need no entry, their shapes "
    "follow from the inputs"
)


def _parsed(code: str) -> ast.Call | None:
    """The call at the beginning of the text; what follows it is left out."""
    depth = 0
    for at, character in enumerate(code):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character == ")":
            try:
                body = ast.parse(code[: at + 1].strip().replace("...", "Ellipsis"), mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
            return body if isinstance(body, ast.Call) else None
    return None


def _points(call: ast.Call, words: dict[str, ast.expr]) -> list[Point]:
    found: list[Point] = []
    if "dynamo_export" in ast.unparse(call.func):
        says = "gone; torch.onnx.export(..., dynamo=True) is it"
        found.append(Point(about="dynamo_export", level="wrong", says=says, source=SOURCE))
    if "dynamic_axes" in words:
        found.append(Point(about="dynamic_axes", level="changed", says=_AXES, source=SOURCE))
    opset = words.get("opset_version")
    if isinstance(opset, ast.Constant) and isinstance(opset.value, int) and opset.value < 18:
        says = (
            f"opset {opset.value}: the new exporter writes 18 or newer; TensorRT 10 reads up to 20, "
            "10.15 up to 24"
        )
        found.append(
            Point(about="opset_version", level="changed", says=says, source="facts/compatibility/tensorrt")
        )
    for name in ("example_outputs", "_retain_param_name", "enable_onnx_checker", "use_external_data_format"):
        if name in words:
            found.append(
                Point(about=name, level="wrong", says="was removed years ago: leave it out", source=SOURCE)
            )
    return found


def _rewritten(call: ast.Call, words: dict[str, ast.expr]) -> str:
    """With dynamic_shapes in the place of dynamic_axes, for the inputs alone."""
    outputs = _strings(words.get("output_names"))
    axes = words["dynamic_axes"]
    keywords: list[str] = []
    for word in call.keywords:
        if word.arg == "dynamic_axes":
            keywords.append(f"dynamic_shapes={_shapes(axes, outputs)}")
        elif word.arg == "opset_version" and isinstance(word.value, ast.Constant) and _old(word.value.value):
            keywords.append("opset_version=20")
        elif word.arg not in ("dynamo", "do_constant_folding", "example_outputs"):
            keywords.append(
                f"{word.arg}={ast.unparse(word.value)}" if word.arg else f"**{ast.unparse(word.value)}"
            )
    return f"torch.onnx.export({', '.join([*(ast.unparse(a) for a in call.args), *keywords, 'dynamo=True'])})"


def _old(value: object) -> bool:
    return isinstance(value, int) and value < 18


def _kept(call: ast.Call, words: dict[str, ast.expr]) -> str:
    """As it was, with the old exporter named."""
    if "dynamo" in words:
        return ast.unparse(call)
    return f"{ast.unparse(call)[:-1]}, dynamo=False)"


def _strings(node: ast.expr | None) -> set[str]:
    elements = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return {str(e.value) for e in elements if isinstance(e, ast.Constant)}


def _shapes(axes: ast.expr, outputs: set[str]) -> str:
    if not isinstance(axes, ast.Dict):
        return "{...one entry for each argument of forward, such as {0: torch.export.Dim('batch')}}"
    parts: list[str] = []
    for name, value in zip(axes.keys, axes.values, strict=True):
        label = str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name) if name else "**"
        if label in outputs or (not outputs and label.lower() in ("output", "outputs", "y", "logits")):
            continue
        parts.append(f"{label!r}: {_dims(value)}")
    return "{" + ", ".join(parts) + "}"


def _dims(value: ast.expr) -> str:
    if isinstance(value, ast.List | ast.Tuple):
        return "{" + ", ".join(f"{ast.unparse(e)}: torch.export.Dim.DYNAMIC" for e in value.elts) + "}"
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return (
            "{"
            + ", ".join(f"{ast.unparse(k)}: torch.export.Dim({ast.unparse(v)})" for k, v in pairs if k)
            + "}"
        )
    return ast.unparse(value)
