"""Inputs for a graph, by what its mopt.json says of them, and the comparison of two graphs on the same
inputs.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _contract import blame, brief, fail
from _onnx_file import foreign_operators, load_graph, refuse_operators
from _onnx_precision import halves, round_halves

Feed = dict[str, Any]
TYPES = {
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float)": "float32",
    "tensor(float16)": "float16", "tensor(bool)": "bool", "tensor(double)": "float64",
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(int16)": "int16", "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32", "tensor(uint64)": "uint64",
}  # fmt: skip
TOKENS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
SIZES = ({"batch": 1, "sequence": 7}, {"batch": 3, "sequence": 33}, {"batch": 2, "sequence": 96})
PIXELS = ((1, 64, 64), (2, 96, 64))
LONGEST_CALIBRATION = 128
LONGEST_UNKNOWN = 64
"""Tokens, where nothing says how many a graph takes."""
WEIGHTS = "session.model_external_initializers_file_folder_path"


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far two graphs are apart: the largest difference as a share of the largest number, the least
    cosine.
    """

    largest: float
    cosine: float
    output: str


def read_facts(folder: Path) -> dict[str, Any]:
    """What mopt.json says. Fails when it is not there: the graph is then not one of ours."""
    try:
        facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(
            "broken-artifact",
            f"`{folder.name}` is not a folder that `mopt convert --to onnx` made",
            [brief(error)],
            ["export the model with `mopt convert MODEL --to onnx` first"],
        )
    return facts


def samples(folder: Path, facts: Mapping[str, Any], texts: Sequence[str] = ()) -> list[Feed]:
    """Batches of several shapes, the same at each call; of texts where some are given."""
    dice = random.Random(0)
    if any(v["name"] in TOKENS for v in facts["inputs"]):
        if texts and (folder / "tokenizer.json").is_file():
            return [_of_texts(folder, facts, texts[n : n + 3]) for n in range(0, min(len(texts), 24), 3)]
        longest = int(facts.get("max_tokens") or LONGEST_UNKNOWN)
        return [_tokens(folder, facts, size["batch"], min(size["sequence"], longest), dice) for size in SIZES]
    return [_made_up(facts, size, seed) for seed, size in enumerate(PIXELS)]


def calibration(folder: Path, facts: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[list[Feed], str]:
    """Batches that stand for what will be asked, and where they come from.

    `texts` of the request for models of tokens, `images` (a folder of .npy files, [c,h,w] in 32 bits) for
    others.
    """
    count = int(request.get("calibration_count") or 32)
    if any(v["name"] in TOKENS for v in facts["inputs"]):
        texts = list(request.get("texts") or ())[:count]
        if texts and (folder / "tokenizer.json").is_file():
            whole = _of_texts(folder, facts, texts)  # of one width: the quantizer's histograms ask for it
            rows = [{name: array[n : n + 1] for name, array in whole.items()} for n in range(len(texts))]
            return rows, f"{len(texts)} texts"
        dice = random.Random(1)
        return [
            _tokens(folder, facts, 2, 32, dice) for _ in range(count // 2)
        ], "random tokens: give real texts"
    if request.get("images"):
        found = list(_arrays(Path(request["images"]), facts, count))
        return found, f"{len(found)} images"
    made = [_made_up(facts, PIXELS[n % len(PIXELS)], 100 + n) for n in range(count // 2)]
    return made, "made-up images: give real ones" if _of_images(facts) else "made-up numbers"


def distance(reference: Path, candidate: Path, feeds: Sequence[Feed], *, plain: bool = False) -> Distance:
    """Both graphs on the same inputs. `plain` runs the candidate as it is written: without the runtime's own
    rewriting, and with every FP16 number rounded.
    """
    right, got = open_session(reference, given=True), open_session(candidate, plain=plain)
    names = [v.name for v in right.get_outputs()]
    worst = Distance(largest=0.0, cosine=1.0, output=names[0])
    for feed in feeds:
        for name, a, b in zip(names, run(right, feed), run(got, feed), strict=True):
            found = apart(a, b, name)
            if found.largest > worst.largest or found.cosine < worst.cosine:
                worst = Distance(
                    largest=max(found.largest, worst.largest),
                    cosine=min(found.cosine, worst.cosine),
                    output=name,
                )
    return worst


def apart(wanted: Any, got: Any, name: str) -> Distance:
    """Rows are along the first axis. Fails where the reference itself is not a number."""
    import numpy

    a, b = numpy.asarray(wanted, dtype=numpy.float64), numpy.asarray(got, dtype=numpy.float64)
    if not numpy.isfinite(a).all():
        fail(
            "not-finite",
            f"the graph answers with what is no number before anything was changed: `{name}`",
            [f"{numpy.count_nonzero(~numpy.isfinite(a)):,} of {a.size:,} numbers are infinite or NaN"],
            ["look for NaN in the weights, and for divisions by zero; nothing can be compared with it"],
        )
    if a.shape != b.shape or not numpy.isfinite(b).all():
        return Distance(largest=float("inf"), cosine=-1.0, output=name)
    if not a.size:
        return Distance(largest=0.0, cosine=1.0, output=name)
    a, b = numpy.atleast_1d(a), numpy.atleast_1d(b)
    scale = float(numpy.abs(a).max()) or 1.0
    rows, others = a.reshape(len(a), -1), b.reshape(len(b), -1)
    norms = numpy.linalg.norm(rows, axis=1) * numpy.linalg.norm(others, axis=1)
    cosines = numpy.where(
        (rows == others).all(axis=1), 1.0, (rows * others).sum(1) / numpy.maximum(norms, 1e-30)
    )
    return Distance(largest=float(numpy.abs(a - b).max()) / scale, cosine=float(cosines.min()), output=name)


def open_session(path: Path, *, plain: bool = False, given: bool = False) -> Any:
    """A graph in ONNX Runtime on the CPU. `given` says that a user brought it: then it is at fault itself."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    graph: str | bytes = str(path)
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry(WEIGHTS, str(path.parent))
        graph = _rounded(path)
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
        said = re.sub(r"Load model from .*? failed: ?", "", brief(error))
        if unknown := foreign_operators(load_graph(path)):
            refuse_operators(path, unknown, [said], what="run by ONNX Runtime")
        if given:
            fail(
                "broken-artifact",
                "ONNX Runtime cannot load the graph as it is given",
                [said],
                ["export the model again; `mopt diagnose` on these words may know more"],
            )
        fail("onnx-unreadable", f"ONNX Runtime cannot load `{path.name}`", [said])


def _rounded(path: Path) -> bytes:
    """The graph with every FP16 number rounded; weights stay where they are."""
    model = load_graph(path)
    round_halves(model.graph, halves(model))
    return model.SerializeToString()


def run(session: Any, feed: Feed) -> list[Any]:
    """Inputs are cast to what the graph takes, so that graphs of several precisions get the same."""
    for value in session.get_outputs():
        if value.type not in TYPES:
            fail(
                "type-unknown",
                f"the answer `{value.name}` is of {_shown(value.type)}: it cannot be compared",
                ["answers before and after each step are compared as tensors of numbers"],
                ["leave this output out of the graph, or let it give numbers in 32 bits"],
            )
    given = fed(session, feed)
    try:
        return session.run(None, given)
    except Exception as error:  # noqa: BLE001 - the library's errors share no base of their own
        sizes = ", ".join(f"{name} {' x '.join(map(str, array.shape))}" for name, array in given.items())
        blame(
            error,
            "graph-failed",
            f"ONNX Runtime cannot run the graph on made-up inputs ({sizes})",
            ["graphs are compared before and after each step: free sizes take any number, tokens are any"],
        )


def fed(session: Any, feed: Feed) -> Feed:
    """The inputs in the numbers that a graph takes. Fails for those that none can be made up for."""
    found: Feed = {}
    for value in session.get_inputs():
        if value.type not in TYPES:
            fail(
                "type-unknown",
                f"the input `{value.name}` is of {_shown(value.type)}: nothing can be made up for it",
                [f"inputs of {', '.join(kind[7:-1] for kind in TYPES)} can be"],
                ["export the graph with inputs of numbers in 32 bits or whole numbers, and cast them inside"],
            )
        found[value.name] = feed[value.name].astype(TYPES[value.type])
    return found


def _shown(kind: str) -> str:
    """`string` of `tensor(string)`; sequences and maps as they are called."""
    return kind[7:-1] if kind.startswith("tensor(") else kind


def _tokens(folder: Path, facts: Mapping[str, Any], batch: int, length: int, dice: random.Random) -> Feed:
    """Rows of several lengths, padded on the right; of one size where the graph has no other."""
    import numpy

    batch, length = _shape_of_tokens(facts, batch, length)
    vocabulary = _vocabulary(folder)
    ids = numpy.array([[dice.randrange(1, vocabulary) for _ in range(length)] for _ in range(batch)])
    mask = numpy.ones((batch, length), dtype=numpy.int64)
    for row in range(1, batch):
        mask[row, max(1, length - 5 * row) :] = 0
    types = numpy.zeros((batch, length), dtype=numpy.int64)
    if "max_tokens" in facts:  # of a graph from elsewhere nothing says that it tells segments apart
        types[:, (length + 1) // 2 :] = 1
    return _known(facts, ids * mask, mask, types * mask)


def _shape_of_tokens(facts: Mapping[str, Any], batch: int, length: int) -> tuple[int, int]:
    """The sizes that were asked for, and those of the graph where they are fixed."""
    shape = next(v["shape"] for v in facts["inputs"] if v["name"] in TOKENS)
    if len(shape) != 2:
        return batch, length
    fixed = [size if isinstance(size, int) else None for size in shape]
    return fixed[0] or batch, fixed[1] or length


def _of_texts(folder: Path, facts: Mapping[str, Any], texts: Sequence[str]) -> Feed:
    """Some texts as one batch, padded on the right."""
    import numpy
    from tokenizers import Tokenizer

    longest = min(LONGEST_CALIBRATION, int(facts.get("max_tokens") or LONGEST_UNKNOWN))
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.no_padding()
    found = [made.encode(text) for text in texts]
    width = max(1, *(min(longest, len(one.ids)) for one in found))
    rows, width = _shape_of_tokens(facts, len(texts), width)
    longest, found = min(longest, width), [found[n % len(found)] for n in range(rows)]
    ids, mask, types = (numpy.zeros((rows, width), dtype=numpy.int64) for _ in range(3))
    ids[:] = int(facts.get("pad_token_id") or 0)
    for row, one in enumerate(found):
        count = min(longest, len(one.ids))
        ids[row, :count], mask[row, :count] = one.ids[:count], 1
        types[row, :count] = one.type_ids[:count]
    return _known(facts, ids, mask, types)


def _known(facts: Mapping[str, Any], ids: Any, mask: Any, types: Any) -> Feed:
    import numpy

    places = numpy.broadcast_to(numpy.arange(ids.shape[1]), ids.shape)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, "position_ids": places}
    found = {v["name"]: given[v["name"]].astype("int64") for v in facts["inputs"] if v["name"] in given}
    sizes: dict[str, int] = {}
    for value in facts["inputs"]:
        if value["name"] in found:
            named = zip(value["shape"], found[value["name"]].shape, strict=False)
            sizes |= {name: size for name, size in named if isinstance(name, str)}
    others = [value for value in facts["inputs"] if value["name"] not in found]
    return found | _noise(others, sizes, len(ids), 0)


def _vocabulary(folder: Path) -> int:
    """How many tokens there are: by config.json, else by the table that the graph looks tokens up in."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        size = _rows_of_table(folder / "model.onnx")
    return max(2, int(size or 100))


def _rows_of_table(path: Path) -> int | None:
    graph = load_graph(path).graph
    rows = {tensor.name: tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) == 2}
    tokens = {"input_ids"}
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in tokens:
            tokens.add(node.output[0])
        if node.op_type == "Gather" and node.input[1] in tokens and node.input[0] in rows:
            return int(rows[node.input[0]])
    return None


def _of_images(facts: Mapping[str, Any]) -> bool:
    return len(facts["inputs"]) == 1 and len(facts["inputs"][0]["shape"]) == 4


def _made_up(facts: Mapping[str, Any], size: tuple[int, int, int], seed: int) -> Feed:
    """Pictures for a network of images; for any other, noise: free dimensions of one name are of one size."""
    if _of_images(facts):
        return _pixels(facts, size, seed)
    return _noise(facts["inputs"], {}, size[0], seed)


def _noise(values: Sequence[Mapping[str, Any]], sizes: dict[str, int], batch: int, seed: int) -> Feed:
    """Free dimensions of one name are of one size, as `sizes` says; what is past is empty."""
    import numpy

    noise = numpy.random.default_rng(seed)
    feed: Feed = {}
    for value in values:
        shape = [
            d if isinstance(d, int) else sizes.setdefault(str(d), _free(str(d), place, batch, seed))
            for place, d in enumerate(value["shape"])
        ]
        kind = TYPES.get(value.get("type", ""), "float32")
        whole = kind.removeprefix("u").startswith("int") or kind == "bool"
        feed[value["name"]] = noise.integers(0, 2, shape) if whole else noise.standard_normal(shape)
    return feed


def _free(name: str, place: int, batch: int, seed: int) -> int:
    if place == 0:
        return batch
    return 0 if name.startswith("past") else 8 * (1 + seed % 2)


def _pixels(facts: Mapping[str, Any], size: tuple[int, int, int], seed: int) -> Feed:
    """Smooth pictures with edges: waves and a rectangle, in the range that a normalised image has."""
    import numpy

    (value,) = [v for v in facts["inputs"] if len(v["shape"]) == 4]
    channels, height, width = (
        given if isinstance(given, int) else wanted
        for given, wanted in zip(value["shape"][1:], (3, size[1], size[2]), strict=True)
    )
    step = int(facts.get("size_step") or 1)
    height, width = max(step, height // step * step), max(step, width // step * step)
    noise = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width] / 16.0
    batch = value["shape"][0] if isinstance(value["shape"][0], int) else size[0]
    image = numpy.empty((batch, channels, height, width), dtype=numpy.float32)
    for row in range(batch):
        for channel in range(channels):
            waves = noise.uniform(0.2, 1.5, 2)
            plane = numpy.sin(waves[0] * x + row) + numpy.cos(waves[1] * y + channel)
            plane[height // 4 : height // 2, width // 4 : width // 2] += noise.uniform(-1, 1)
            image[row, channel] = plane + 0.1 * noise.standard_normal((height, width))
    if facts.get("pixel_range") == [0, 1]:
        image = (image - image.min()) / (image.max() - image.min())
    if value.get("type") == "tensor(uint8)":
        image = 255 * (image - image.min()) / (image.max() - image.min())
    return {value["name"]: image}


def _arrays(folder: Path, facts: Mapping[str, Any], count: int) -> Iterator[Feed]:
    import numpy

    (value,) = [v for v in facts["inputs"] if len(v["shape"]) == 4]
    paths: Iterable[Path] = sorted(folder.glob("*.npy"))[:count] if folder.is_dir() else ()
    for path in paths:
        try:
            array = numpy.load(path, allow_pickle=False).astype("float32")
        except (OSError, ValueError) as error:
            fail("calibration-unreadable", f"`{path.name}` is no array", [brief(error)])
        yield {value["name"]: array[None] if array.ndim == 3 else array}
