"""Plants one fault a graph and lets the operators' worker look for it; run by the onnx environment.

    python plant_operators.py WORKERS MODELS OUT [FAULT ... | - FAULT ...]

MODELS holds what tests/workers/make_models.py and make_vision.py made. Every fault is put into a graph that is
right, or into its checkpoint; OUT/answers.json gets the worker's answer to each by the fault's name.
"""

import importlib
import json
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnx

WORKERS, MODELS, OUT = map(Path, sys.argv[1:4])
sys.path.append(str(WORKERS))
import _contract  # noqa: E402
import operators_compare  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

LIMITS = {
    "fp32": {"own": 5e-6, "place": 2e-6, "answer": 1e-4, "stands_out": 5e-6},
    "fp16": {"own": 5e-3, "place": 0.1, "answer": 0.05, "stands_out": 2e-3},
    "int8": {"own": 0.15, "place": 0.5, "answer": 0.5, "stands_out": 0.05},
}
TEXTS = ["the quick brown fox", "jumps over the lazy dog again and again"]
Model = Any


def worker(name: str, out: Path, **request: Any) -> Path:
    if not (out / "model.onnx").is_file():
        out.mkdir(parents=True, exist_ok=True)
        importlib.import_module(name).job({"out": str(out), **request})
    return out


def base(name: str) -> Path:
    """The right graph of a stage."""
    source = str(biased() if name == "bert" else MODELS / name.partition("-")[0])
    out = OUT / "base" / name
    match name:
        case "lm":
            return worker("onnx_prefill", out, source=source, opset=20)
        case "bert":
            return worker("onnx_export", out, source=source, task="embed", opset=20)
        case "yolo":
            return worker("onnx_vision", out, source=source, opset=20)
        case "lm-clean":
            return worker("onnx_clean", out, source=str(base("lm")))
        case "lm-fp16":
            return worker("onnx_cast", out, source=str(base("lm-clean")), scheme="fp16")
        case _:
            return worker("onnx_qdq", out, source=str(base("lm-clean")), scheme="int8", least_cosine=0.5)


def biased() -> Path:
    """The encoder with biases that are not zero, as trained ones are."""
    from safetensors.numpy import load_file, save_file

    folder = OUT / "base" / "bert-checkpoint"
    if not folder.exists():
        shutil.copytree(MODELS / "bert", folder)
        dice, weights = numpy.random.default_rng(0), load_file(folder / "model.safetensors")
        for name, weight in weights.items():
            if name.endswith(".bias"):
                weights[name] = dice.normal(0, 0.2, weight.shape).astype("float32")
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def planted(name: str, fault: str, change: Callable[[Model], None]) -> Path:
    """A copy of a right graph with a change in it."""
    out = OUT / fault / name
    shutil.copytree(base(name), out)
    model = onnx.load(str(out / "model.onnx"))
    change(model)
    for path in out.glob("model.onnx*"):
        path.unlink()
    onnx.save_model(model, str(out / "model.onnx"))
    return out


def node(model: Model, operator: str, module: str) -> Any:
    """The last node of a kind in a module."""
    found = [
        n
        for n in model.graph.node
        if n.op_type == operator and any(f"'{module}'" in p.value for p in n.metadata_props)
    ]
    return found[-1]


def array(model: Model, name: str) -> Any:
    return numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))


def give(model: Model, target: Any, place: int, value: Any) -> None:
    """A constant of its own for one input of one node."""
    name = f"planted_{target.name}_{place}"
    model.graph.initializer.append(numpy_helper.from_array(numpy.ascontiguousarray(value), name))
    target.input[place] = name


def changed(module: str, operator: str, place: int, how: Callable[[Any], Any]) -> Callable[[Model], None]:
    """Another constant for one input of an operator."""

    def change(model: Model) -> None:
        target = node(model, operator, module)
        give(model, target, place, how(array(model, target.input[place])))

    return change


def rope_base(model: Model) -> None:
    target = node(model, "Mul", "model.model.rotary_emb")
    at = next(i for i, v in enumerate(target.input) if "inv_freq" in v)
    right = array(model, target.input[at])
    give(
        model,
        target,
        at,
        (1e4 ** -(numpy.arange(right.size) / right.size)).astype("float32").reshape(right.shape),
    )


def epsilon(model: Model) -> None:
    changed("model.model.layers.1.input_layernorm", "Add", 1, lambda e: e * 100)(model)


def swapped(model: Model) -> None:
    k, v = (node(model, "MatMul", f"model.model.layers.0.self_attn.{n}_proj") for n in "kv")
    k.input[1], v.input[1] = v.input[1], k.input[1]


def mask_off(model: Model) -> None:
    node(model, "LessOrEqual", "model.model").op_type = "Less"


def no_bias(model: Model) -> None:
    add = node(model, "Add", "model.encoder.layer.1.intermediate.dense")
    product = add.input[0]
    for other in model.graph.node:
        for at, value in enumerate(other.input):
            if value == add.output[0]:
                other.input[at] = product
    model.graph.node.remove(add)


def first_token(model: Model) -> None:
    """Pooling takes the first token where the model's files say mean."""
    mean = next(n for n in model.graph.node if n.op_type == "Div" and "sum" in n.input[0])
    hidden = next(n for n in model.graph.node if n.output[0] == mean.input[0])
    hidden = next(n for n in model.graph.node if n.output[0] == hidden.input[0]).input[1]
    made = helper.make_node(
        "Gather", [hidden, "planted_zero"], list(mean.output), name="planted_first", axis=1
    )
    made.metadata_props.extend(mean.metadata_props)
    model.graph.initializer.append(numpy_helper.from_array(numpy.array(0, dtype="int64"), "planted_zero"))
    at = list(model.graph.node).index(mean)
    model.graph.node.remove(mean)
    model.graph.node.insert(at, made)


def frozen(rows: Any) -> Any:
    """Positions beyond the example's 16 all take the sixteenth: shorter inputs show nothing."""
    found = rows.copy()
    found[16:] = rows[15]
    return found


POSITIONS = "model.embeddings.position_embeddings"


def doubled_weight_scale(model: Model) -> None:
    product = node(model, "MatMul", "model.model.layers.0.mlp.up_proj")
    maker = next(n for n in model.graph.node if product.input[1] in n.output)
    give(model, maker, 1, array(model, maker.input[1]) * 2)


def halved_activation_scale(model: Model) -> None:
    product = node(model, "MatMul", "model.model.layers.1.self_attn.o_proj")
    expand = next(n for n in model.graph.node if product.input[0] in n.output)
    quantize = next(n for n in model.graph.node if expand.input[0] in n.output)
    half = array(model, quantize.input[1]) / 2
    give(model, quantize, 1, half)
    give(model, expand, 1, half)


def overflow() -> dict[str, Any]:
    """A model whose layer 1 leaves FP16's range inside its MLP and comes back: right in 32 bits."""
    from safetensors.torch import load_file, save_file

    folder = OUT / "overflow" / "checkpoint"
    shutil.copytree(MODELS / "lm", folder)
    weights = load_file(folder / "model.safetensors")
    prefix = "model.layers.1.mlp"
    weights[f"{prefix}.up_proj.weight"] *= 3e5
    weights[f"{prefix}.down_proj.weight"] /= 3e5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    def scale(model: Model) -> None:
        changed(f"model.{prefix}.up_proj", "MatMul", 1, lambda w: w * numpy.float32(3e5))(model)
        changed(f"model.{prefix}.down_proj", "MatMul", 1, lambda w: w / numpy.float32(3e5))(model)

    clean = planted("lm-clean", "overflow", scale)
    half = OUT / "overflow" / "fp16"
    half.mkdir()
    worker("onnx_cast", half, source=str(clean), scheme="fp16", least_cosine=-2.0)
    return {
        "reference": str(folder),
        "task": "generate",
        "stages": [("clean-up", "fp32", clean), ("cast", "fp16", half)],
    }


def asked(reference: str, task: str, *stages: tuple[str, str, Path]) -> dict[str, Any]:
    return {"reference": str(MODELS / reference), "task": task, "stages": list(stages)}


def lm(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    return asked("lm", "generate", ("export", "fp32", planted("lm", fault, change)))


def bert(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    found = planted("bert", fault, change)
    return {**asked("bert", "embed", ("export", "fp32", found)), "reference": str(biased())}


def yolo(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    return asked("yolo", "vision", ("export", "fp32", planted("yolo", fault, change)))


def quantized(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    begin = [("export", "fp32", base("lm")), ("clean-up", "fp32", base("lm-clean"))]
    return asked("lm", "generate", *begin, ("Q/DQ", "int8", planted("lm-int8", fault, change)))


def cleaned(fault: str) -> dict[str, Any]:
    """The clean-up loses a scale."""

    def change(model: Model) -> None:
        changed("model.model.layers.1.self_attn.v_proj", "MatMul", 1, lambda w: w * numpy.float32(1.5))(model)

    return asked(
        "lm",
        "generate",
        ("export", "fp32", base("lm")),
        ("clean-up", "fp32", planted("lm-clean", fault, change)),
    )


def other_tokenizer(fault: str) -> dict[str, Any]:
    found = lm(fault, lambda _model: None)
    path = found["stages"][0][2] / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {**content["pre_tokenizer"], "add_prefix_space": True}
    path.write_text(json.dumps(content))
    return found


def nothing(_model: Model) -> None:
    """No fault at all."""


FAULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "right-lm": lambda: lm("right-lm", nothing),
    "right-fp16": lambda: asked(
        "lm", "generate", ("export", "fp32", base("lm")), ("clean-up", "fp32", base("lm-clean")),
        ("cast", "fp16", base("lm-fp16")),
    ),
    "right-int8": lambda: quantized("right-int8", nothing),
    "right-bert": lambda: bert("right-bert", nothing),
    "right-yolo": lambda: yolo("right-yolo", nothing),
    "rope": lambda: lm("rope", rope_base),
    "epsilon": lambda: lm("epsilon", epsilon),
    "swapped": lambda: lm("swapped", swapped),
    "mask": lambda: lm("mask", mask_off),
    "transposed": lambda: lm(
        "transposed", changed("model.model.layers.1.self_attn.o_proj", "MatMul", 1, lambda w: w.T)
    ),
    "tokenizer": lambda: other_tokenizer("tokenizer"),
    "bias": lambda: bert("bias", no_bias),
    "pooling": lambda: bert("pooling", first_token),
    "frozen": lambda: bert("frozen", changed(POSITIONS, "Gather", 0, frozen)),
    "short": lambda: bert("short", changed(POSITIONS, "Gather", 0, lambda rows: rows[:16])),
    "overflow": overflow,
    "weight-scale": lambda: quantized("weight-scale", doubled_weight_scale),
    "activation-scale": lambda: quantized("activation-scale", halved_activation_scale),
    "clean-up": lambda: cleaned("clean-up"),
    "yolo-bias": lambda: yolo("yolo-bias", changed("model.22.proto.cv2.bn", "Conv", 2, lambda b: b * 0)),
    "yolo-transposed": lambda: yolo(
        "yolo-transposed", changed("model.4.cv2.bn", "Conv", 1, lambda w: w[::-1])
    ),
}  # fmt: skip


def look(name: str) -> dict[str, Any]:
    found = FAULTS[name]()
    out = OUT / name / "cut"
    out.mkdir(parents=True, exist_ok=True)
    stages = [
        {"name": n, "tool": n, "scheme": scheme, "path": str(folder / "model.onnx")}
        for n, scheme, folder in found["stages"]
    ]
    request = {**found, "stages": stages, "limits": LIMITS, "texts": TEXTS, "out": str(out)}
    try:
        return {**operators_compare.job(request), "cut": sorted(p.name for p in out.iterdir())}
    except _contract.Failure as failure:
        return {"error": failure.message, "cause": failure.cause}


if __name__ == "__main__":
    answers = {}
    named = sys.argv[4:]
    if named[:1] == ["-"]:  # all but these
        named = [name for name in FAULTS if name not in named]
    for fault in named or FAULTS:
        try:
            answers[fault] = look(fault)
        except Exception:  # noqa: BLE001 - one fault that cannot be planted must not hide the others
            traceback.print_exc()
            answers[fault] = {"error": traceback.format_exc()}
    (OUT / "answers.json").write_text(json.dumps(answers))
