"""Plants one fault a graph and lets the operators' worker look for it; run by the onnx environment.

    python plant_operators.py WORKERS MODELS OUT [FAULT ... | - FAULT ... | minilm]

MODELS holds what tests/workers/make_models.py and make_vision.py made, and for faults that begin with
`minilm-` the real MiniLM in a folder `minilm`. Every fault is put into a graph that is
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
    "bf16": {"own": 4e-2, "place": 0.2, "answer": 0.2, "stands_out": 1.6e-2},
    "int8": {"own": 0.15, "place": 0.5, "answer": 0.5, "stands_out": 0.05},
}
TEXTS = ["the quick brown fox", "jumps over the lazy dog again and again"]
Model = Any


def worker(name: str, out: Path, **request: Any) -> Path:
    if not (out / "model.onnx").is_file():
        out.mkdir(parents=True, exist_ok=True)
        importlib.import_module(name).job({"out": str(out), **request})
    return out


EXPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lm": ("onnx_prefill", {}),
    "bert": ("onnx_export", {"task": "embed"}),
    "minilm": ("onnx_export", {"task": "embed"}),
    "yolo": ("onnx_vision", {}),
}
TASKS = {"lm": "generate", "bert": "embed", "minilm": "embed", "yolo": "vision"}


def base(name: str) -> Path:
    """The right graph of a stage."""
    kind, _, stage = name.partition("-")
    source = str(biased() if kind == "bert" else MODELS / kind)
    out = OUT / "base" / name
    match stage:
        case "":
            job, more = EXPORTS[kind]
            return worker(job, out, source=source, opset=20, **more)
        case "clean":
            return worker("onnx_clean", out, source=str(base(kind)))
        case "fp16" | "bf16":
            return worker("onnx_cast", out, source=str(base(f"{kind}-clean")), scheme=stage)
        case _:
            clean = str(base(f"{kind}-clean"))
            # As `mopt convert` asks for: what a trained model cannot bear in 8 bits is left wider.
            least = 0.99 if kind == "minilm" else 0.5
            return worker("onnx_qdq", out, source=clean, scheme="int8", least_cosine=least)


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


def mask_off(model: Model) -> None:
    node(model, "LessOrEqual", "model.model").op_type = "Less"


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


def doubled_weight_scale(operator: str, module: str) -> Callable[[Model], None]:
    """The weights of a product come out twice as large."""

    def change(model: Model) -> None:
        product = node(model, operator, module)
        maker = next(n for n in model.graph.node if product.input[1] in n.output)
        give(model, maker, 1, array(model, maker.input[1]) * 2)

    return change


def halved_activation_scale(operator: str, module: str) -> Callable[[Model], None]:
    """What goes into a product is cut at half of its range."""

    def change(model: Model) -> None:
        product = node(model, operator, module)
        expand = next(n for n in model.graph.node if product.input[0] in n.output)
        quantize = next(n for n in model.graph.node if expand.input[0] in n.output)
        half = array(model, quantize.input[1]) / 2
        give(model, quantize, 1, half)
        give(model, expand, 1, half)

    return change


def attribute(operator: str, module: str, name: str, value: float) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        next(a for a in node(model, operator, module).attribute if a.name == name).f = value

    return change


def swapped_weights(*modules: str) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        one, other = (node(model, "MatMul", module) for module in modules)
        one.input[1], other.input[1] = other.input[1], one.input[1]

    return change


def dropped_bias(operator: str, module: str) -> Callable[[Model], None]:
    """Whoever reads the sum reads the product."""

    def change(model: Model) -> None:
        add = node(model, operator, module)
        weight = {t.name for t in model.graph.initializer}
        product = next(name for name in add.input if name not in weight)
        for other in model.graph.node:
            for at, value in enumerate(other.input):
                if value == add.output[0]:
                    other.input[at] = product
        model.graph.node.remove(add)

    return change


def shifted_mask(model: Model) -> None:
    """Every place takes the mask of the place after it: the last word is left out, no padding is let in."""
    reader = next(n for n in model.graph.node if n.op_type == "Cast" and n.input[0] == "attention_mask")
    at = list(model.graph.node).index(reader)
    for name, numbers in (("one", [1]), ("last", [-1]), ("end", [2**31]), ("axis", [1])):
        numbers = numpy.array(numbers, dtype="int64")
        model.graph.initializer.append(numpy_helper.from_array(numbers, f"planted_{name}"))

    def cut(name: str, begin: str) -> Any:
        places = ["attention_mask", begin, "planted_end", "planted_axis"]
        return helper.make_node("Slice", places, [name], name=name)

    tail, last = cut("planted_tail", "planted_one"), cut("planted_edge", "planted_last")
    whole = helper.make_node(
        "Concat", [tail.output[0], last.output[0]], ["planted_mask"], name="planted_mask", axis=1
    )
    for place, made in enumerate((tail, last, whole)):
        made.metadata_props.extend(reader.metadata_props)
        model.graph.node.insert(at + place, made)
    reader.input[0] = "planted_mask"


def frozen_positions(model: Model) -> None:
    """Rotary tables that end at the example's 16 places: all later ones take the last row."""
    reader = next(n for n in model.graph.node if "position_ids" in n.input)
    model.graph.initializer.append(numpy_helper.from_array(numpy.array(15, dtype="int64"), "planted_last"))
    made = helper.make_node("Min", ["position_ids", "planted_last"], ["planted_ids"], name="planted_min")
    made.metadata_props.extend(node(model, "Mul", "model.model.rotary_emb").metadata_props)
    model.graph.node.insert(list(model.graph.node).index(reader), made)
    for other in model.graph.node:
        if other is not made and other.name != "planted_min":
            for at, value in enumerate(other.input):
                if value == "position_ids":
                    other.input[at] = "planted_ids"


def overflow(kind: str, factors: dict[str, float]) -> dict[str, Any]:
    """A model that leaves FP16's range inside one layer and, where two factors undo each other, comes back:
    right in 32 bits, in PyTorch as in the graph. The graph that is cast is exported from it anew.
    """
    from safetensors.torch import load_file, save_file

    place = OUT / f"{kind}-overflow"
    folder = place / "checkpoint"
    shutil.copytree(MODELS / kind, folder)
    weights = load_file(folder / "model.safetensors")
    for name, factor in factors.items():
        weights[name] = weights[name] * factor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    job, more = EXPORTS[kind]
    exported = worker(job, place / "export", source=str(folder), opset=20, **more)
    clean = worker("onnx_clean", place / "clean", source=str(exported))
    half = worker("onnx_cast", place / "fp16", source=str(clean), scheme="fp16", least_cosine=-2.0)
    return {
        "reference": str(folder),
        "task": TASKS[kind],
        "stages": [("clean-up", "fp32", clean), ("cast", "fp16", half)],
    }


def within(model: Model, operator: str, module: str, reads: str) -> Any:
    """A node of a module that reads what a node of another kind makes."""
    made = {value for n in model.graph.node if n.op_type == reads for value in n.output}
    found = [
        n
        for n in model.graph.node
        if n.op_type == operator
        and any(f"'{module}'" in p.value for p in n.metadata_props)
        and any(value in made for value in n.input)
    ]
    return found[-1]


def settled(operator: str, module: str, **values: Any) -> Callable[[Model], None]:
    """Other attributes of one operator."""

    def change(model: Model) -> None:
        target = node(model, operator, module)
        kept = [a for a in target.attribute if a.name not in values]
        del target.attribute[:]
        target.attribute.extend([*kept, *(helper.make_attribute(n, v) for n, v in values.items())])

    return change


def no_scale(model: Model) -> None:
    """Scores are not divided by the root of a head's size."""
    target = within(model, "Mul", "model.model.layers.1.self_attn", "MatMul")
    weights = {t.name for t in model.graph.initializer}
    give(model, target, next(i for i, v in enumerate(target.input) if v in weights), numpy.float32(1))


def swapped_norm(model: Model) -> None:
    norm = node(model, "LayerNormalization", f"{LAYER_1}.output.LayerNorm")
    norm.input[1], norm.input[2] = norm.input[2], norm.input[1]


def detour(model: Model) -> None:
    """What leaves one product goes through BF16 and comes back."""
    target = node(model, "MatMul", "model.model.layers.1.mlp.down_proj")
    at = list(model.graph.node).index(target)
    begin, between, end = "planted_raw", "planted_brain", target.output[0]
    target.output[0] = begin
    for place, (one, other, kind) in enumerate(((begin, between, 16), (between, end, 1))):
        made = helper.make_node("Cast", [one], [other], name=f"planted_cast_{place}", to=kind)
        made.metadata_props.extend(target.metadata_props)
        model.graph.node.insert(at + 1 + place, made)


def unmasked_mean(model: Model) -> None:
    """Pooling adds up padding too."""
    chosen = next(n for n in model.graph.node if n.op_type == "Where" and n.output[0].startswith("where_1"))
    total = next(n for n in model.graph.node if n.op_type == "ReduceSum" and n.input[0] == chosen.output[0])
    total.input[0] = chosen.input[1]


def no_residual(model: Model) -> None:
    """The stream is cut at one feed-forward layer: twice its answer instead of the sum."""
    target = node(model, "Add", "model.model.layers.0")
    product = node(model, "MatMul", "model.model.layers.0.mlp.down_proj").output[0]
    assert product in target.input
    target.input[0] = target.input[1] = product


def reversed_heads(weight: Any) -> Any:
    return numpy.ascontiguousarray(weight.reshape(len(weight), 2, -1)[:, ::-1].reshape(weight.shape))


def swapped_parts(model: Model) -> None:
    target = node(model, "Concat", "model.4")
    target.input[1], target.input[2] = target.input[2], target.input[1]


def no_half(model: Model) -> None:
    """One level's points lie in corners instead of middles."""
    made = {n.output[0] for n in model.graph.node if n.op_type in ("Range", "Cast")}
    target = next(n for n in model.graph.node if n.op_type == "Add" and n.input[0] in made)
    give(model, target, 1, numpy.float32(0))


def shifted_zero(steps: int) -> Callable[[Model], None]:
    """An input's zero lies some steps away when it is expanded."""

    def change(model: Model) -> None:
        product = node(model, "MatMul", "model.model.layers.1.mlp.up_proj")
        expand = next(n for n in model.graph.node if product.input[0] in n.output)
        give(model, expand, 2, (array(model, expand.input[2]) + steps).astype("int8"))

    return change


def idle_mask(model: Model) -> None:
    """Attention sees the padding; the pooling does not."""
    bool_type = onnx.TensorProto.BOOL
    target = next(
        n for n in model.graph.node
        if n.op_type == "Cast" and n.input[0] == "attention_mask" and n.attribute[0].i == bool_type
    )  # fmt: skip
    target.op_type = "GreaterOrEqual"
    del target.attribute[:]
    target.input.append("")
    give(model, target, 1, numpy.int64(0))


def frozen_columns(model: Model) -> None:
    """Places are counted up to the width of 136 pixels, and those beyond lie there too."""
    made = [n.output[0] for n in model.graph.node if n.op_type == "Range"][1]
    reader = next(n for n in model.graph.node if made in n.input)
    held = onnx.helper.make_node("Min", [made, ""], ["held"], name="held")
    held.metadata_props.extend(reader.metadata_props)
    give(model, held, 1, numpy.int64(16))
    model.graph.node.insert(list(model.graph.node).index(reader), held)
    reader.input[list(reader.input).index(made)] = "held"


def faint(fault: str) -> dict[str, Any]:
    """Of what the clean-up of a segmenter with random weights gets wrong here, next to nothing is left in
    the answers.
    """
    wrong = planted("yolo-clean", fault, settled("Resize", "model.10", mode="linear"))
    return asked("yolo", "vision", ("export", "fp32", base("yolo")), ("clean-up", "fp32", wrong))


def infinite(model: Model) -> None:
    """One number of a weight is beyond FP16."""
    change = changed("model.model.layers.1.mlp.down_proj", "MatMul", 1, lambda w: _put(w, numpy.inf))
    change(model)


def _put(weight: Any, value: float) -> Any:
    found = weight.copy()
    found[3, 5] = value
    return found


def in_half(fault: str, kind: str, change: Callable[[Model], None], scheme: str = "fp16") -> dict[str, Any]:
    """A fault that the step to 16 bits brings in."""
    begin = [("export", "fp32", base(kind)), ("clean-up", "fp32", base(f"{kind}-clean"))]
    found = asked(kind, TASKS[kind], *begin, ("cast", scheme, planted(f"{kind}-{scheme}", fault, change)))
    return {**found, "reference": str(biased())} if kind == "bert" else found


def asked(reference: str, task: str, *stages: tuple[str, str, Path]) -> dict[str, Any]:
    return {"reference": str(MODELS / reference), "task": task, "stages": list(stages)}


def lm(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    return asked("lm", "generate", ("export", "fp32", planted("lm", fault, change)))


def bert(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    found = planted("bert", fault, change)
    return {**asked("bert", "embed", ("export", "fp32", found)), "reference": str(biased())}


def yolo(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    return asked("yolo", "vision", ("export", "fp32", planted("yolo", fault, change)))


def minilm(fault: str, change: Callable[[Model], None]) -> dict[str, Any]:
    return asked("minilm", "embed", ("export", "fp32", planted("minilm", fault, change)))


def quantized(fault: str, change: Callable[[Model], None], kind: str = "lm") -> dict[str, Any]:
    begin = [("export", "fp32", base(kind)), ("clean-up", "fp32", base(f"{kind}-clean"))]
    last = ("Q/DQ", "int8", planted(f"{kind}-int8", fault, change))
    return asked(kind, TASKS[kind], *begin, last)


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


def other_vocabulary(fault: str) -> dict[str, Any]:
    """Two words have changed their numbers."""
    found = minilm(fault, lambda _model: None)
    path = found["stages"][0][2] / "tokenizer.json"
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    words["fox"], words["dog"] = words["dog"], words["fox"]
    path.write_text(json.dumps(content))
    return found


def other_tokenizer(fault: str) -> dict[str, Any]:
    found = lm(fault, lambda _model: None)
    path = found["stages"][0][2] / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {**content["pre_tokenizer"], "add_prefix_space": True}
    path.write_text(json.dumps(content))
    return found


LAYER_1 = "model.encoder.layer.1"


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
    "swapped": lambda: lm(
        "swapped", swapped_weights(*(f"model.model.layers.0.self_attn.{n}_proj" for n in "kv"))
    ),
    "mask": lambda: lm("mask", mask_off),
    "transposed": lambda: lm(
        "transposed", changed("model.model.layers.1.self_attn.o_proj", "MatMul", 1, lambda w: w.T)
    ),
    "tokenizer": lambda: other_tokenizer("tokenizer"),
    "bias": lambda: bert("bias", dropped_bias("Add", f"{LAYER_1}.intermediate.dense")),
    "pooling": lambda: bert("pooling", first_token),
    "frozen": lambda: bert("frozen", changed(POSITIONS, "Gather", 0, frozen)),
    "short": lambda: bert("short", changed(POSITIONS, "Gather", 0, lambda rows: rows[:16])),
    "lm-frozen": lambda: lm("lm-frozen", frozen_positions),
    "overflow": lambda: overflow(
        "lm", {f"model.layers.1.mlp.{n}_proj.weight": f for n, f in (("up", 3e5), ("down", 1 / 3e5))}
    ),
    "weight-scale": lambda: quantized(
        "weight-scale", doubled_weight_scale("MatMul", "model.model.layers.0.mlp.up_proj")
    ),
    "activation-scale": lambda: quantized(
        "activation-scale", halved_activation_scale("MatMul", "model.model.layers.1.self_attn.o_proj")
    ),
    "clean-up": lambda: cleaned("clean-up"),
    "yolo-bias": lambda: yolo("yolo-bias", changed("model.22.proto.cv2.bn", "Conv", 2, lambda b: b * 0)),
    "yolo-transposed": lambda: yolo(
        "yolo-transposed", changed("model.4.cv2.bn", "Conv", 1, lambda w: w[::-1])
    ),
    "yolo-overflow": lambda: overflow("yolo", {"model.2.cv1.bn.weight": 3e6}),
    "yolo-weight-scale": lambda: quantized(
        "yolo-weight-scale", doubled_weight_scale("Conv", "model.4.cv2.bn"), "yolo"
    ),
    "yolo-activation-scale": lambda: quantized(
        "yolo-activation-scale", halved_activation_scale("Conv", "model.6.cv1.bn"), "yolo"
    ),
    "softmax-axis": lambda: lm(
        "softmax-axis", settled("Softmax", "model.model.layers.0.self_attn", axis=-2)
    ),
    "no-scale": lambda: lm("no-scale", no_scale),
    "detour": lambda: lm("detour", detour),
    "no-residual": lambda: lm("no-residual", no_residual),
    "heads": lambda: lm(
        "heads", changed("model.model.layers.1.self_attn.v_proj", "MatMul", 1, reversed_heads)
    ),
    "norm-swapped": lambda: bert("norm-swapped", swapped_norm),
    "positions-off": lambda: bert(
        "positions-off", changed(POSITIONS, "Gather", 0, lambda rows: numpy.roll(rows, 1, 0))
    ),
    "gelu": lambda: bert(
        "gelu", settled("Gelu", f"{LAYER_1}.intermediate.intermediate_act_fn", approximate="tanh")
    ),
    "unmasked": lambda: bert("unmasked", unmasked_mean),
    "yolo-resize": lambda: yolo("yolo-resize", settled("Resize", "model.13", mode="linear")),
    "yolo-points": lambda: yolo("yolo-points", no_half),
    "yolo-parts": lambda: yolo("yolo-parts", swapped_parts),
    "zero-point": lambda: quantized("zero-point", shifted_zero(9)),
    "zero-point-by-one": lambda: quantized("zero-point-by-one", shifted_zero(1)),
    "idle-mask": lambda: bert("idle-mask", idle_mask),
    "yolo-frozen": lambda: yolo("yolo-frozen", frozen_columns),
    "yolo-faint": lambda: faint("yolo-faint"),
    "infinite": lambda: in_half("infinite", "lm", infinite),
    "half-axis": lambda: in_half(
        "half-axis", "lm", settled("Softmax", "model.model.layers.0.self_attn", axis=-2)
    ),
    "half-epsilon": lambda: in_half(
        "half-epsilon", "bert", settled("LayerNormalization", f"{LAYER_1}.output.LayerNorm", epsilon=0.02)
    ),
    "half-gelu": lambda: in_half(
        "half-gelu", "bert", settled("Gelu", f"{LAYER_1}.intermediate.intermediate_act_fn", approximate="tanh")
    ),
    "half-norm-swapped": lambda: in_half("half-norm-swapped", "bert", swapped_norm),
    "half-transposed": lambda: in_half(
        "half-transposed", "lm", changed("model.model.layers.1.self_attn.o_proj", "MatMul", 1, lambda w: w.T)
    ),
    "right-alone": lambda: {
        **asked("bert", "embed", ("all steps", "fp16", base("bert-fp16"))), "reference": str(biased())
    },
    "right-bf16": lambda: in_half("right-bf16", "lm", nothing, "bf16"),
    "brain-transposed": lambda: in_half(
        "brain-transposed", "lm", changed("model.model.layers.1.self_attn.o_proj", "MatMul", 1, lambda w: w.T),
        "bf16",
    ),
    "minilm-right": lambda: minilm("minilm-right", nothing),
    "minilm-right-int8": lambda: quantized("minilm-right-int8", nothing, "minilm"),
    "minilm-epsilon": lambda: minilm(
        "minilm-epsilon", attribute("LayerNormalization", f"{LAYER_1}.output.LayerNorm", "epsilon", 1e-5)
    ),
    "minilm-swapped": lambda: minilm(
        "minilm-swapped", swapped_weights(f"{LAYER_1}.attention.self.key", f"{LAYER_1}.attention.self.value")
    ),
    "minilm-mask": lambda: minilm("minilm-mask", shifted_mask),
    "minilm-bias": lambda: minilm("minilm-bias", dropped_bias("Add", f"{LAYER_1}.intermediate.dense")),
    "minilm-transposed": lambda: minilm(
        "minilm-transposed", changed(f"{LAYER_1}.attention.output.dense", "MatMul", 1, lambda w: w.T)
    ),
    "minilm-pooling": lambda: minilm("minilm-pooling", first_token),
    "minilm-frozen": lambda: minilm("minilm-frozen", changed(POSITIONS, "Gather", 0, frozen)),
    "minilm-tokenizer": lambda: other_vocabulary("minilm-tokenizer"),
    "minilm-overflow": lambda: overflow(
        "minilm",
        {"encoder.layer.1.intermediate.dense.weight": 3e5, "encoder.layer.1.intermediate.dense.bias": 3e5,
         "encoder.layer.1.output.dense.weight": 1 / 3e5},
    ),
    "minilm-weight-scale": lambda: quantized(
        "minilm-weight-scale", doubled_weight_scale("MatMul", f"{LAYER_1}.attention.self.value"), "minilm"
    ),
    "minilm-activation-scale": lambda: quantized(
        "minilm-activation-scale",
        halved_activation_scale("MatMul", f"{LAYER_1}.intermediate.dense"),
        "minilm",
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
    finally:
        for _, _, folder in found["stages"]:
            if name.startswith("minilm-") and name in folder.parts:  # 90 MB each
                shutil.rmtree(folder)


if __name__ == "__main__":
    answers = {}
    named = sys.argv[4:]
    if named[:1] == ["-"]:  # all but these, and but those of the real MiniLM
        named = [name for name in FAULTS if name not in named and not name.startswith("minilm-")]
    if named == ["minilm"]:
        named = [name for name in FAULTS if name.startswith("minilm-")]
    for fault in named or FAULTS:
        try:
            answers[fault] = look(fault)
        except Exception:  # noqa: BLE001 - one fault that cannot be planted must not hide the others
            traceback.print_exc()
            answers[fault] = {"error": traceback.format_exc()}
        (OUT / "answers.json").write_text(json.dumps(answers))
