"""Build a language model for ONNX Runtime GenAI on the CPU, and compare it with the original.

Request: {source, out, scheme, precision: fp32|int8|int4, options}. `options` are the builder's own, each
`name=value`. `out` is an existing empty folder that gets model.onnx and model.onnx.data, genai_config.json,
the tokenizer's files, config.json and mopt.json. Result: {versions, notes, weights, parity}.

What the builder's int8 and int4 are is read from the graph it made: weights in blocks with a 32-bit scale
each (MatMulNBits), multiplied by activations that the kernel rounds to 8 bits.
"""

import gc
import importlib.metadata
import json
import logging
import math
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import (
    TOKENIZER_FILES,
    check_weights,
    copy_files,
    read_config,
    require_loaded,
    require_tokenizer,
)
from _contract import blame, brief, fail, main, progress

PACKAGES = ("onnxruntime-genai", "onnxruntime", "torch", "transformers")
TOKENS = 24
# Of the largest logit: what separates rounding from a different computation, in full precision.
INSTEAD = "serve it with PyTorch or vLLM"
TOLERANCE = 2e-4
# Below this the graph is not a rounded version of the model but another one.
LEAST_COSINE = 0.5


def job(request: dict[str, Any]) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)  # the quantizer tells of every node
    source, out, precision = Path(request["source"]), Path(request["out"]), request["precision"]
    progress("reading the checkpoint", 0.0)
    config = read_config(source)
    check_weights(source)
    require_tokenizer(source)
    tokens, wanted = answer(source, config)
    gc.collect()
    progress("building", 0.25)
    build(source, out, precision, request["options"])
    for path in out.iterdir():
        path.chmod(0o644)
    copy_files(source, out, [n for n in ("config.json", *TOKENIZER_FILES) if not (out / n).exists()])
    progress("comparing with the original", 0.9)
    parity = compare(out, tokens, wanted, exact=precision == "fp32")
    weights, notes = describe(out / "model.onnx")
    facts = {
        "schema": "onnx_folder/1",
        "task": "generate",
        "scheme": request["scheme"],
        "max_tokens": context_length(out),
        "weights": weights,
        "parity": parity,
    }
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "weights": weights,
        "parity": parity,
        "notes": [*notes, parity_note(parity, exact=precision == "fp32")],
    }


def answer(source: Path, config: dict[str, Any]) -> tuple[list[int], Any]:
    """Token ids of a fixed prompt, and the logits that the original gives at every place of it."""
    import torch
    import transformers

    try:
        model, loaded = transformers.AutoModelForCausalLM.from_pretrained(
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
            f"transformers {transformers.__version__} cannot load `{config['architectures'][0]}`",
            [brief(error)],
            ["models that bring their own code are refused"],
        )
    require_loaded(list(loaded["missing_keys"]), unused=r"^$")
    dice = random.Random(0)
    tokens = [dice.randrange(model.config.get_text_config().vocab_size) for _ in range(TOKENS)]
    progress("computing what the original answers", 0.15)
    with torch.no_grad():
        logits = model.eval()(torch.tensor([tokens])).logits[0].numpy()
    return tokens, logits


def build(source: Path, out: Path, precision: str, given: list[str]) -> None:
    """Run the builder of onnxruntime-genai in this process."""
    from onnxruntime_genai.models import builder

    if precision == "int8":
        share_the_head()
    place = str(source)
    version = importlib.metadata.version("onnxruntime-genai")
    with tempfile.TemporaryDirectory(dir=out, prefix=".scratch-") as scratch:
        try:
            options = builder.parse_extra_options(place, place, str(out), precision, "cpu", scratch, given)
            builder.create_model(place, place, str(out), precision, "cpu", scratch, **options)
        except NotImplementedError as error:
            fail(
                "unsupported-architecture",
                f"onnxruntime-genai {version} cannot build this architecture",
                [brief(error)],
                [INSTEAD],
            )
        except Exception as error:  # noqa: BLE001 - the builder raises whatever a configuration lacks
            blame(error, "build-failed", f"onnxruntime-genai {version} cannot build this model", [INSTEAD])


def share_the_head() -> None:
    """Let 8-bit models use the output head as the embedding table where the model ties the two.

    The builder of 0.18 does so in 4-bit models (there also for a head of 8 bits) and writes a second table,
    in 32 bits, into 8-bit ones, which makes them as large as 16-bit ones. Where the hook is not found any
    more, that is what is made, and the notes say so.
    """
    from builders.base import Model

    right = getattr(Model, "make_tied_embeddings_init", None)
    if right is None or getattr(right, "shares", False):
        return

    def init(self: Any, config: Any) -> None:
        right(self, config)
        asked = self.extra_options.get("shared_embeddings", False)
        whole = not (self.exclude_embeds or self.exclude_lm_head)
        if asked and whole and self.is_lm_head_quantized():
            self.tied_quantized_embeddings, self.tied_unquantized_embeddings = True, False

    init.shares = True  # pyright: ignore[reportFunctionMemberAccess]
    Model.make_tied_embeddings_init = init


def compare(out: Path, tokens: list[int], wanted: Any, *, exact: bool) -> dict[str, Any]:
    """Load what was built and let it read the same prompt. Fails when it is not the same model."""
    import numpy
    import onnxruntime_genai

    model = onnxruntime_genai.Model(str(out))
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=max(len(tokens) + 1, window(out)), batch_size=1)
    try:
        generator = onnxruntime_genai.Generator(model, parameters)
        generator.append_tokens(numpy.array([tokens], dtype=numpy.int32))
    except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
        blame(error, "build-failed", "what onnxruntime-genai built cannot be run", [INSTEAD])
    got = numpy.array(generator.get_output("logits"))[0, :, : wanted.shape[-1]]
    difference = float(numpy.abs(got - wanted).max()) / (float(numpy.abs(wanted).max()) or 1.0)
    products = (got * wanted).sum(-1)
    lengths = numpy.linalg.norm(got, axis=-1) * numpy.linalg.norm(wanted, axis=-1)
    cosine = float((products / lengths).mean())
    if not (difference <= TOLERANCE if exact else cosine >= LEAST_COSINE):
        fail(
            "export-differs",
            "what was built does not compute what the model computes",
            [f"logits differ by {difference:.2g} of the largest, their mean cosine is {cosine:.3f}"],
            [f"this architecture may not be supported fully; {INSTEAD}"],
        )
    return {"tokens": len(tokens), "largest_difference": difference, "mean_cosine": cosine}


def parity_note(parity: dict[str, Any], *, exact: bool) -> str:
    if exact:
        return (
            f"same as PyTorch at {parity['tokens']} places: "
            f"largest difference {parity['largest_difference']:.1e} of the largest logit"
        )
    return f"logits at {parity['tokens']} places of random text: mean cosine {parity['mean_cosine']:.4f}"


def window(out: Path) -> int:
    """Tokens that the cache must have room for: a layer with a sliding window refuses a smaller one."""
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    wide = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    return min(int(wide or 0), context_length(out))


def describe(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What the numbers in the graph are: operators, bits, blocks, and what was left in 32 bits."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    nodes = [(node, attributes(node)) for node in graph.node]
    blocks = [(node, found) for node, found in nodes if node.op_type == "MatMulNBits"]
    left = sum(node.op_type == "MatMul" for node, _ in nodes)
    if not blocks:
        weights = {"operator": "MatMul", "bits": 32, "quantized": 0, "left": left}
        return weights, [f"{left} weight matrices in 32-bit floating point"]
    body = [found for node, found in blocks if "lm_head" not in node.name]
    head = [found for node, found in blocks if "lm_head" in node.name]
    bits, block = body[0]["bits"], body[0]["block_size"]
    table, table_bits = embedding(graph, nodes)
    rounds = body[0].get("accuracy_level") == 4
    weights = {
        "operator": "MatMulNBits",
        "bits": bits,
        "block_size": block,
        "symmetric": not any(len(node.input) > 3 and node.input[3] for node, _ in blocks),
        "quantized": len(blocks),
        "left": left,
        "head_bits": head[0]["bits"] if head else 32,
        "embedding_bits": table_bits,
        "activations": "int8 by block inside the kernel (accuracy level 4)" if rounds else "float32",
    }
    return weights, in_words(weights, table)


def embedding(graph: Any, nodes: list[tuple[Any, dict[str, Any]]]) -> tuple[int, int]:
    """Bytes of a table of its own in 32 bits (0 when it shares the head's), and the bits that are read."""
    import onnx

    sizes = {tensor.name: tensor for tensor in graph.initializer}
    for node, found in nodes:
        if node.op_type == "GatherBlockQuantized":
            return 0, int(found.get("bits", 4))
        if node.op_type == "Gather" and node.input[0] in sizes:
            tensor = sizes[node.input[0]]
            if tensor.data_type == onnx.TensorProto.FLOAT:
                return 4 * math.prod(tensor.dims), 32
    return 0, 32


def in_words(weights: dict[str, Any], table: int) -> list[str]:
    kind = "symmetric" if weights["symmetric"] else "asymmetric"
    notes = [
        f"{weights['quantized']} weight matrices in {weights['bits']}-bit integers, {kind}, a 32-bit scale "
        f"for each {weights['block_size']} weights; {weights['left']} left in 32 bits"
    ]
    if weights["head_bits"] != weights["bits"]:
        notes.append(
            f"the output head is one of them, in {weights['head_bits']} bits: it tells near words apart, "
            "and fewer bits cost most there"
        )
    if table:
        notes.append(
            f"the embedding table ({table / 1e6:.1f} MB) stays in 32 bits: it is not the output head"
        )
    else:
        notes.append(f"the embedding table is the output head's, in {weights['embedding_bits']} bits")
    if weights["activations"] != "float32":
        notes.append("the kernel rounds activations to 8 bits block by block (accuracy level 4)")
    return notes


def attributes(node: Any) -> dict[str, Any]:
    import onnx

    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def context_length(out: Path) -> int:
    return int(json.loads((out / "genai_config.json").read_text(encoding="utf-8"))["model"]["context_length"])


if __name__ == "__main__":
    main(job)
