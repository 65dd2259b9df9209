"""Where does a converted graph begin to compute something else than the checkpoint it was made from?

Request: {reference, task, stages: [{name, tool, scheme, path}], limits: {scheme: {own, answer}}, texts,
per_run, out}. The stages are graphs, the first made from the checkpoint, each other one from the one before;
the last is the candidate. `out` is an existing empty folder that gets the first bad operator as operator.onnx
with inputs.npz, wanted.npz and run.py.

The checkpoint in PyTorch in float32 is the truth. Every stage answers the same inputs of several sizes; what
it adds to the distance is its own. In a stage that keeps the precision, cut points are searched for the first
that differs; in one that lowers it, every product is computed alone from the values before the stage. Result:
{feeds, stages: [...], first, runs, alone, seconds}.

Polygraphy is not used here. Its comparators pair values by name alone and know no PyTorch module; marking
all holds every output at once; its bisection runs the model from its beginning for each piece (30 s for one
of two layers, where this takes 4), and cannot tell an operator's own error from what it inherited. Its runner
for PyTorch assumes CUDA.
"""

import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
import _outputs
from _checkpoint import most_tokens, read_config
from _contract import brief, fail, main, progress
from _onnx_feeds import SIZES, samples
from _operators_cut import write_cut
from _operators_graph import Feed, Graph, RunFailed, fitted
from _operators_search import (
    PRODUCTS,
    SHOWN,
    Found,
    Pairs,
    Search,
    apart,
    between_graphs,
    blame,
    blame_scale,
    with_truth,
)
from _operators_torch import Truth

EXACT = ("fp32",)
PEERS = 6.0
"""Times the median of its peers from which an own error stands out, in a stage that lowers the precision."""
NORMS = (
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "Reciprocal",
    "Cos", "Sin",
)  # fmt: skip
JUMP = 8.0
"""Times the median of the inputs from which the error of one of them is looked into."""
AROUND = 32
"""Places looked at in a step whose answers are right; four runs of the default eight."""
LONGEST = 512
WIDEST = 1280
"""Places on a side of a picture up to which one larger than the model's own size is tried."""


def job(request: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    warnings.filterwarnings("ignore")
    source = Path(request["reference"])
    progress("reading the graphs", 0.0)
    stages = [{**stage, "graph": Graph(Path(stage["path"]))} for stage in request["stages"]]
    _check_inputs(stages[0]["graph"])
    truth = Truth(source, request["task"])
    feeds = make_feeds(source, stages[-1]["graph"], request)
    work = Work(truth, feeds, request)
    progress("answers of every stage", 0.2)
    work.answers(stages)
    found = []
    for number, stage in enumerate(stages):
        progress(f"looking into {stage['name']}", 0.3 + 0.6 * number / len(stages))
        found.append(work.look(stages, number))
    first = next(((n, bad) for n, suspects in enumerate(found) for bad in suspects), None)
    if first is not None:
        progress("cutting the first bad operator out", 0.95)
        write_cut(Path(request["out"]), stages[first[0]], first[1])
    return {
        "feeds": [label(feed) for feed in feeds],
        "tokenizer": compare_tokenizers(source, stages[-1]["graph"].path.parent, request.get("texts") or []),
        "stages": [
            {**work.rows[number], "suspects": [bad["about"] for bad in suspects[:SHOWN]]}
            for number, suspects in enumerate(found)
        ],
        "runtime": work.runtime,
        "emulated": stages[-1]["graph"].emulated,
        "first": None if first is None else first[0],
        "runs": work.runs,
        "alone": work.alone,
        "seconds": round(time.monotonic() - began, 2),
    }


def _check_inputs(graph: Graph) -> None:
    past = [name for name in graph.inputs if name.startswith("past_key_values")]
    if past:
        fail(
            "kv-cache",
            f"`{graph.path.parent.name}` takes a KV cache, so its operators cannot be held against PyTorch's",
            [f"`{past[0]}` is one of its inputs"],
            ["compare it with --layer model, or convert the prefill with --to onnx-typed"],
        )


def make_feeds(source: Path, graph: Graph, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Several sizes, up to as long as the model allows (at most LONGEST tokens), and its last positions."""
    import numpy

    kinds = {v.name: v for v in graph.model.graph.input if v.name in graph.inputs}
    described = [{"name": name, "shape": _dims(value)} for name, value in kinds.items()]
    facts: dict[str, Any] = {"inputs": described}
    if request["task"] == "vision":
        return _pictures(source, facts, kinds)
    most = most_tokens(source, read_config(source))
    longest = min(LONGEST, most)
    feeds = samples(source, {**facts, "max_tokens": longest})
    if longest > feeds[-1]["input_ids"].shape[1]:
        dice = numpy.random.default_rng(0)
        top = int(feeds[-1]["input_ids"].max())
        shape = (1, longest)
        values = {
            "input_ids": dice.integers(1, top, shape), "attention_mask": numpy.ones(shape, dtype="int64"),
            "token_type_ids": numpy.zeros(shape, dtype="int64"),
            "position_ids": numpy.arange(longest).reshape(shape),
        }  # fmt: skip
        feeds.append({name: values[name].astype("int64") for name in feeds[-1]})
    if most > longest and "position_ids" in feeds[0]:
        feeds.append({**feeds[1], "position_ids": feeds[1]["position_ids"] + most - SIZES[1]["sequence"]})
    return feeds


def _pictures(source: Path, facts: dict[str, Any], kinds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Small ones, and where sides are free one larger than the model is meant for: what was frozen at the
    exporter's own size is right up to it.
    """
    config = read_config(source)
    if config.get("model_type") == "yolo_seg":
        facts |= {"size_step": 32, "pixel_range": [0, 1]}
    feeds = samples(source, facts)
    side, step = config.get("image_size"), int(facts.get("size_step") or 32)
    name = next(iter(feeds[0]))
    sizes = _dims(kinds[name])
    free = len(sizes) == 4 and all(isinstance(size, str) for size in sizes[2:])
    if free and isinstance(side, int) and step <= side <= WIDEST:
        larger = {"name": name, "shape": [1, sizes[1], side + step, side + 2 * step]}
        feeds.append(samples(source, {**facts, "inputs": [larger]})[0])
    return feeds


def spread(values: Sequence[str], most: int) -> list[str]:
    """At most so many of some values, evenly from the first to the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(n * (len(values) - 1) / (most - 1))] for n in range(most)]


def _jumps(errors: Sequence[float], least: float) -> list[int]:
    """Inputs that lose far more than the others do, though not what would fail them by itself."""
    usual = median(errors)
    return [at for at, error in enumerate(errors) if error > max(JUMP * usual, least / JUMP)]


def label(feed: Feed) -> str:
    """The size of an input, and where it stands when that is not the beginning."""
    size = " x ".join(map(str, next(iter(feed.values())).shape))
    begin = int(feed["position_ids"].min()) if "position_ids" in feed else 0
    return f"{size} from position {begin}" if begin else size


def _dims(value: Any) -> list[int | str]:
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in value.type.tensor_type.shape.dim]


class Work:
    """What stays the same while stages are looked at, and the rows of the report."""

    def __init__(self, truth: Truth, feeds: Sequence[Feed], request: Mapping[str, Any]) -> None:
        self.truth, self.feeds = truth, feeds
        self.limits, self.per_run = request["limits"], int(request.get("per_run") or 8)
        self.rows: list[dict[str, Any]] = []
        self.errors: list[list[float]] = []
        self.failures: dict[int, dict[int, RunFailed]] = {}
        self.runtime: dict[str, Any] | None = None
        self.runs = self.alone = 0

    def answers(self, stages: Sequence[Mapping[str, Any]]) -> None:
        """Every stage at every input, beside the truth and beside the stage before."""
        right = [self._true(feed) for feed in self.feeds]
        before: list[list[Any] | None] = list(right)
        for number, stage in enumerate(stages):
            got = [self._answer(number, at, stage["graph"]) for at in range(len(self.feeds))]
            self.errors.append([_worst(g, b) for g, b in zip(got, before, strict=True)])
            self.rows.append(
                {
                    "name": stage["name"], "tool": stage.get("tool"), "scheme": stage["scheme"],
                    "truth": _number(max(_worst(g, r) for g, r in zip(got, right, strict=True))),
                    "added": _number(max(self.errors[-1])),
                    "places": 0, "looked": 0, "median_own": None,
                    "shortest": None, "failed": None,
                }
            )  # fmt: skip
            before = got
        self._runtime(stages[-1]["graph"], before)

    def _true(self, feed: Feed) -> list[Any]:
        try:
            return self.truth.run(feed)[0]
        except Exception as error:  # noqa: BLE001 - PyTorch's errors share no base of their own
            fail(
                "other-model",
                f"the reference cannot be computed at an input of the candidate's, {label(feed)}",
                [brief(error)],
                ["name the checkpoint that the graph was made from"],
            )

    def _answer(self, number: int, at: int, graph: Graph) -> list[Any] | None:
        try:
            return list(graph.values(self.feeds[at], graph.outputs).values())
        except RunFailed as failed:
            self.failures.setdefault(number, {})[at] = failed
            return None

    def _runtime(self, graph: Graph, plain: Sequence[list[Any] | None]) -> None:
        """What the runtime's own rewriting of the last graph adds: the step that comes after all files."""
        if graph.emulated:
            return
        session = graph.session(plain=False)
        worst = 0.0
        for feed, wanted in zip(self.feeds, plain, strict=True):
            if wanted is not None:
                worst = max(worst, _worst(session.run(graph.outputs, fitted(session, feed)), wanted))
        self.runtime = {"added": _number(worst)}

    def look(self, stages: Sequence[Mapping[str, Any]], number: int) -> list[dict[str, Any]]:
        """The places of one stage whose own error is too large, the first first."""
        stage, graph, row = stages[number], stages[number]["graph"], self.rows[number]
        limit = self.limits[stage["scheme"]]
        if number in self.failures and not (number and number - 1 in self.failures):
            return [self._stopped(number, graph, row)]
        exact = stage["scheme"] in EXACT
        # What is kept exact is looked into from far below what would fail it: small faults hide in answers.
        least = limit["place"] if exact else limit["answer"]
        bad = [at for at, error in enumerate(self.errors[number]) if error > least]
        if not bad and not exact:
            bad = _jumps(self.errors[number], least)
        at = min(bad, key=lambda n: _size(self.feeds[n])) if bad else min(1, len(self.feeds) - 1)
        if bad and len(bad) < len(self.feeds):
            row["shortest"] = label(self.feeds[at])
        feed = self.feeds[at]
        pairs = self._pairs(stages, number, feed)
        search = Search(graph, pairs, feed, per_run=self.per_run, own_limit=limit["own"])
        row["places"] = len(pairs.keys)
        lost = self.errors[number][at] if bad else None
        if exact:
            found = self._exact(search, limit) if bad else self._hidden(search, limit)
        else:
            found = self._lowered(search, limit, row, lost)
        row["looked"] = len(search.known) + search.alone
        self.runs += search.runs
        self.alone += search.alone
        return [self._about(stage, graph, one, number, exact, limit, feed) for one in found]

    def _pairs(self, stages: Sequence[Mapping[str, Any]], number: int, feed: Feed) -> Pairs:
        graph = stages[number]["graph"]
        if number:
            return between_graphs(stages[number - 1]["graph"], graph, feed)
        return with_truth(self.truth, graph, self.feeds[0], feed)

    def _exact(self, search: Search, limit: Mapping[str, float]) -> list[Found]:
        one = search.first(limit["place"])
        if one is None:
            return []
        lost = max(search.known[value] for value in search.graph.outputs if value in search.known)
        # Rounding that adds up over many layers is no operator's fault, up to what answers may differ.
        return [one] if one.own > search.own_limit or lost > limit["answer"] else []

    def _hidden(self, search: Search, limit: Mapping[str, float]) -> list[Found]:
        """What is wrong and dies away before the answers: some places all over the graph are looked at."""
        places = spread(search.leaving(), AROUND)
        errors = search.errors(places)
        bad = next((value for value in places if errors[value] > limit["place"]), None)
        one = search.back(bad) if bad is not None else None
        return [one] if one is not None and one.own > search.own_limit else []

    def _lowered(
        self, search: Search, limit: Mapping[str, float], row: dict[str, Any], lost: float | None
    ) -> list[Found]:
        targets = [v for v in search.order if _multiplies(search, v) or _norms(search, v)]
        found = search.sweep(targets)
        finite = [one.own for one in found if math.isfinite(one.own)]
        row["median_own"] = usual = median(finite) if finite else 0.0
        outlier = max(limit["stands_out"], PEERS * usual)
        row["own_limit"] = search.own_limit = min(limit["own"], outlier)
        wrong = [one for one in found if one.own > search.own_limit]
        wrong.extend(search.own(value) for value in search.shifted() if all(value != w.value for w in wrong))
        if lost is not None and not wrong:
            one = search.first(min(limit["answer"], lost / PEERS))
            wrong = [one] if one is not None else []
        return [search.own(one.value) for one in wrong[:SHOWN]]

    def _about(
        self, stage: Mapping[str, Any], graph: Graph, one: Found, number: int, exact: bool,
        limit: Mapping[str, float], feed: Feed,
    ) -> dict[str, Any]:  # fmt: skip
        guilty = graph.maker[one.value]
        if any(graph.nodes[n].op_type == "QuantizeLinear" for n in one.piece):
            guilty = blame_scale(graph, one, limit["own"])
        elif not number:
            guilty = blame(self.truth, graph, one, feed) if exact else guilty
        guilty = _before_casts(graph, guilty, one)
        about = {
            **graph.describe(guilty), "at": one.value, "own": _number(one.own), "total": _number(one.total),
            "nodes": len(one.piece), "own_limit": self.rows[number].get("own_limit") or limit["own"],
            "because": _because(graph, guilty, one),
        }  # fmt: skip
        about["module"] = about["module"] or graph.describe(graph.maker[one.value])["module"]
        about["module"] = self.truth.named(str(about["module"]))
        return {"about": about, "found": one}

    def _stopped(self, number: int, graph: Graph, row: dict[str, Any]) -> dict[str, Any]:
        """A graph that cannot be run on some input; where the runtime names the node, that is the place."""
        at, failed = min(self.failures[number].items(), key=lambda pair: _size(self.feeds[pair[0]]))
        row["failed"] = brief(failed)
        row["shortest"] = label(self.feeds[at])
        numbers = [n for n, node in enumerate(graph.nodes) if node.name and node.name == failed.node]
        said = (
            graph.describe(numbers[0])
            if numbers
            else {"node": failed.node, "operator": "", "value": "", "module": ""}
        )
        why = str(failed).splitlines()[0].split("Status Message: ")[-1][:300]
        about = {**said, "at": said["value"], "own": None, "total": None, "nodes": 1, "own_limit": 0.0,
                 "because": f"it cannot be computed at {row['shortest']}: {why}"}  # fmt: skip
        about["module"] = self.truth.named(str(about["module"]))
        found = None
        if numbers:
            found = self._stuck(graph, numbers[0], at)
        return {"about": about, "found": found}

    def _stuck(self, graph: Graph, number: int, at: int) -> Found | None:
        """The node that fails with the values that reach it."""
        names = [v for v in graph.nodes[number].input if v and v not in graph.initializers]
        try:
            got = graph_before(graph, number).values(self.feeds[at], names)
        except RunFailed:
            return None
        return Found(graph.nodes[number].output[0], math.inf, math.inf, (number,), got, None)


def graph_before(graph: Graph, number: int) -> Graph:
    """The same graph up to a node, so that what it reads can be had although it fails."""
    import copy

    short = copy.copy(graph)
    short.model = type(graph.model)()
    short.model.CopyFrom(graph.model)
    del short.model.graph.node[number:]
    del short.model.graph.output[:]
    short.outputs = []
    return short


def _because(graph: Graph, guilty: int, one: Found) -> str | None:
    import numpy

    node = graph.nodes[guilty]
    if math.isinf(one.own):
        largest = float(numpy.abs(numpy.asarray(one.wanted, dtype="float64")).max())
        if largest > 65504:
            return f"its largest value is {largest:.3g}, FP16 ends at 65504"
        return "it makes NaN or infinity from finite inputs, or another shape"
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        maker = graph.maker.get(node.input[0])
        if node.op_type == "DequantizeLinear" and maker is not None:
            return "its scale or zero point is not that of the QuantizeLinear before it"
        side = "activation" if node.op_type == "QuantizeLinear" else "weight"
        return f"the scale of this {side} does not fit its numbers"
    return None


def _multiplies(search: Search, value: str) -> bool:
    """A place with a product on the way from the paired ones; a product itself where all are paired.

    Not the weights of an attention: half a unit in the last place of a score of 20 is a percent of its power.
    """
    graph = search.graph
    if value not in graph.maker or graph.nodes[graph.origin(value)].op_type == "Softmax":
        return False
    return any(graph.nodes[n].op_type in PRODUCTS for n in graph.piece(value, search.pairs.keys)[0])


def _norms(search: Search, value: str) -> bool:
    """A norm or an angle: what is wrong there can hide in the answers, and stands out alone."""
    graph = search.graph
    return value in graph.maker and graph.nodes[graph.origin(value)].op_type in NORMS


def _before_casts(graph: Graph, guilty: int, one: Found) -> int:
    """A cast that a tool put in is not to blame for what it was given."""
    while graph.nodes[guilty].op_type == "Cast" and not graph.scopes[guilty]:
        before = graph.maker.get(graph.nodes[guilty].input[0])
        if before is None or before not in one.piece:
            break
        guilty = before
    return guilty


def _worst(got: Sequence[Any] | None, wanted: Sequence[Any] | None) -> float:
    """Answers that are missing on both sides do not differ: the step before has the blame."""
    if got is None or wanted is None:
        return 0.0 if got is wanted else math.inf
    if len(got) < len(wanted):
        return math.inf
    return max((apart(a, b) for a, b in zip(got, wanted, strict=False)), default=0.0)


def _size(feed: Feed) -> int:
    return next(iter(feed.values())).size


def _number(value: float) -> float | None:
    """Infinity is no JSON."""
    return None if math.isnan(value) else min(value, 1e300)


def compare_tokenizers(source: Path, folder: Path, texts: Sequence[str]) -> dict[str, Any] | None:
    """How the candidate's tokenizer.json cuts texts beside the checkpoint's; None where one has none."""
    files = [place / "tokenizer.json" for place in (source, folder)]
    if not texts or not all(file.is_file() for file in files):
        return None
    rows = [{"text": text} for text in texts]
    wanted, got = (_outputs.tokenize_plainly(file, rows, LONGEST) for file in files)
    different, first = _outputs.first_difference(got, wanted)
    return {"checked": len(rows), "different": different, "first": first}


if __name__ == "__main__":
    main(job)
