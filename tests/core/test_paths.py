"""Chains of tools: found by what tools declare, never through something quantized twice."""

from dataclasses import dataclass, replace

import pytest

from model_optimizer.core import Artifact, ModelSpec, Needs, UsageError, plugins
from model_optimizer.core.paths import Hop, Order, choose, finder, named, needs, paths, reachable, refusals

FLOATS = frozenset({"fp32", "fp16", "bf16"})
SCHEMES = {n: m.SCHEME for n, m in plugins.load_all("model_optimizer.schemes").items()}
MODEL = ModelSpec(
    name="m", architecture="BertModel", model_type="bert", task="embed", parameters=1000,
    active_parameters=1000, embedding_parameters=100, layers=1, hidden_size=8, intermediate_size=16,
    vocab_size=10, heads=1, kv_heads=1, head_dim=8, attention="mha", groups=(),
)  # fmt: skip


@dataclass
class FakeTool:
    READS: str
    WRITES: dict[str, str]
    FROM: frozenset[str] = FLOATS
    TASKS: frozenset[str] = frozenset({"embed"})
    ENVIRONMENT: str = "onnx"
    memory: int = 10

    def needs(self, model, scheme) -> Needs:
        return Needs(disk_bytes=5, memory_bytes=self.memory, artifact_bytes=scheme.weight_bits)

    def make(self, source, scheme, out, *, run, progress) -> Artifact:
        return replace(source, path=str(out), scheme=scheme.name, format=self.WRITES[scheme.name])


@pytest.fixture
def tools() -> dict[str, FakeTool]:
    return {
        "export": FakeTool("safetensors", {"fp32": "onnx"}),
        "dynamic": FakeTool("onnx", {"int8": "onnx"}, frozenset({"fp32"}), memory=30),
        "blockwise": FakeTool("onnx", {"int4_rtn": "onnx", "int8_weight": "onnx"}, frozenset({"fp32"})),
        "compile": FakeTool("onnx", {"fp32": "engine", "int8": "engine"}, frozenset()),
        "genai": FakeTool(
            "safetensors", {"fp32": "genai", "int4_rtn": "genai"}, TASKS=frozenset({"generate"})
        ),
    }


def through(chains) -> list[list[str]]:
    return [[f"{hop.tool}:{hop.scheme}" for hop in chain] for chain in chains]


def test_a_quantizer_follows_the_export(tools) -> None:
    found = paths("embed", "int8", "safetensors", ("onnx",), tools, have_scheme="fp32")
    assert through(found) == [["export:fp32", "dynamic:int8"]]


def test_the_task_decides_which_tools_count(tools) -> None:
    assert through(paths("generate", "int4_rtn", "safetensors", ("genai", "onnx"), tools)) == [
        ["genai:int4_rtn"]
    ]
    assert paths("generate", "int8", "safetensors", ("genai", "onnx"), tools) == []


def test_nothing_is_quantized_twice(tools) -> None:
    assert paths("embed", "int4_rtn", "onnx", ("onnx",), tools, have_scheme="int8") == []
    found = paths("embed", "int8", "safetensors", ("engine",), tools, have_scheme="bf16")
    assert through(found) == [["export:fp32", "dynamic:int8", "compile:int8"]]


def test_a_tool_with_an_empty_from_keeps_the_scheme(tools) -> None:
    assert through(paths("embed", "int8", "onnx", ("engine",), tools, have_scheme="int8")) == [
        ["compile:int8"]
    ]
    assert paths("embed", "fp32", "onnx", ("engine",), tools, have_scheme="int8") == []


def test_what_is_there_already_takes_no_tool(tools) -> None:
    assert paths("embed", "bf16", "safetensors", ("safetensors",), tools, have_scheme="bf16") == [()]


def test_the_shortest_chain_is_first_and_circles_end(tools) -> None:
    tools["back"] = FakeTool("onnx", {"fp32": "safetensors"}, frozenset({"fp32"}))
    tools["direct"] = FakeTool("safetensors", {"int8": "onnx"})
    found = through(paths("embed", "int8", "safetensors", ("onnx",), tools, have_scheme="bf16"))
    assert found[0] == ["direct:int8"]
    assert ["export:fp32", "dynamic:int8"] in found


def test_reachable_lists_what_can_be_made(tools) -> None:
    made = {(hop.scheme, hop.format) for hop in reachable("embed", "safetensors", tools, have_scheme="fp32")}
    assert made == {
        ("fp32", "onnx"), ("int8", "onnx"), ("int4_rtn", "onnx"), ("int8_weight", "onnx"),
        ("fp32", "engine"), ("int8", "engine"),
    }  # fmt: skip
    assert reachable("vision", "safetensors", tools) == []


def test_a_plan_names_its_chain(tools) -> None:
    chains = paths("embed", "int8", "safetensors", ("onnx",), tools, have_scheme="fp32")
    assert named(["export", "dynamic"], chains) == chains[0]
    with pytest.raises(UsageError, match="export -> blockwise"):
        named(["export", "blockwise"], chains)


def test_needs_of_a_chain(tools) -> None:
    chain = (
        Hop(tool="export", scheme="fp32", format="onnx"),
        Hop(tool="dynamic", scheme="int8", format="onnx"),
    )
    assert needs(chain, MODEL, tools, SCHEMES) == Needs(disk_bytes=10, memory_bytes=30, artifact_bytes=8)
    assert needs((), MODEL, tools, SCHEMES) == Needs()


SOURCE = Artifact(
    path="/m", format="safetensors", scheme="bf16", task="embed", bytes=1, digest="sha256:" + "0" * 64
)


def test_a_finder_answers_with_names(tools) -> None:
    find = finder(MODEL, SOURCE, tools)
    assert find("int8", "onnx") == ("export", "dynamic")
    assert find("bf16", "safetensors") == ()
    assert find("nvfp4", "onnx") is None


def test_a_tool_that_refuses_the_model_is_not_used(tools) -> None:
    tools["export"].refuses = lambda model: f"no {model.architecture}"
    tools["genai"].refuses = lambda model: "another task, not asked"
    assert refusals(MODEL, tools) == {"export": "no BertModel"}
    assert finder(MODEL, SOURCE, tools)("int8", "onnx") is None


@pytest.mark.parametrize(
    ("scheme", "formats", "hints"),
    [
        ("int8", ("engine",), ("`int8` can be made as a, b", "as engine can be made: fp16")),
        (
            "int2",
            ("engine", "a"),
            ("as engine can be made: fp16", "as a can be made: fp16, fp32, int4, int8"),
        ),
        (
            "int2",
            ("c",),
            (
                "as a can be made: fp16, fp32, int4, int8",
                "as engine can be made: fp16",
                "as b can be made: int4, int8",
            ),
        ),
    ],
)
def test_of_many_ways_those_near_to_the_order_are_named(
    scheme: str, formats: tuple[str, ...], hints: tuple[str, ...]
) -> None:
    makers = {
        "a": FakeTool("safetensors", dict.fromkeys(("fp32", "fp16", "int8", "int4"), "a")),
        "b": FakeTool("safetensors", {"int8": "b", "int4": "b"}),
        "engine": FakeTool("safetensors", {"fp16": "engine"}),
    }
    with pytest.raises(UsageError) as caught:
        choose(Order(model=MODEL, source=SOURCE, scheme=scheme, formats=formats), makers)
    assert caught.value.hint == hints


def test_only_causes_that_hold_are_named(tools) -> None:
    tools["export"].refuses = lambda model: "no norm before its layers"
    tools["direct"] = FakeTool("safetensors", {"mixed": "checkpoint"}, TASKS=frozenset({"generate"}))

    def causes(scheme: str, form: str) -> tuple[str, ...]:
        with pytest.raises(UsageError) as caught:
            choose(Order(model=MODEL, source=SOURCE, scheme=scheme, formats=(form,)), tools)
        return caught.value.cause[1:]

    assert causes("int8", "onnx") == ("no norm before its layers",)
    assert causes("mixed", "checkpoint") == ("`mixed` in that format is only made for the task generate",)
    assert causes("int8", "checkpoint") == ()
