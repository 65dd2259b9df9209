"""What an engine computes in, read from logs and judged: pure, with lines as TensorRT for RTX 1.7 writes them."""

import pytest
from _engine_content import EngineLayer, Network, judge, layers_of_inspector, layers_of_log

LOG = [
    "Engine Layer Information:\n"
    "Name: node_MatMul_94_myl0_13, LayerType: gemm, Inputs: [ { Name: a, Dimensions: [-1,384], Datatype: Half, Format: x }], "
    "Constants: [ { Name: c, Dimensions: [1536,384], Datatype: Half, Format: x }], Outputs: [ { Name: b, Datatype: Half }]\n"
    "Name: __myl_Softmax_myl0_14, LayerType: kgen, Inputs: [ { Name: b, Datatype: Half }], Constants: [], "
    "Outputs: [ { Name: d, Datatype: Float }]",
    "I/O Tensors:",
]


def layer(
    kind: str, reads: str, writes: str = "Half", constants: str = "Half", name: str = "m"
) -> EngineLayer:
    return EngineLayer(name=name, kind=kind, reads=(reads,), constants=(constants,), writes=(writes,))


def network(kind: str, products: int = 10, weights: int = 100_000_000, *, quantized: int = 0) -> Network:
    return Network(
        layers=50, heavy={kind: products}, heavy_names={}, weights={kind: weights}, quantized=quantized
    )


def test_layers_are_read_from_the_log() -> None:
    product, softmax = layers_of_log(LOG)
    assert (product.computes, product.reads, product.constants) == (True, ("Half",), ("Half",))
    assert (softmax.computes, softmax.writes) == (False, ("Float",))


def test_layers_are_read_from_the_inspector() -> None:
    said = (
        '{"Layers": [{"Name": "p", "LayerType": "gemm", "Inputs": [{"Format/Datatype": "Row major Half"}], '
        '"Outputs": [{"Datatype": "Half"}]}]}'
    )
    (found,) = layers_of_inspector(said)
    assert found.computes and found.reads == ("Half",) and found.writes == ("Half",)
    assert layers_of_inspector("not json") == []
    assert layers_of_inspector('{"Layers": ["only a name"]}') == []


def test_what_was_asked_is_found() -> None:
    found = judge("fp16", network("Half"), [layer("gemm", "Half")] * 4, 203_000_000, 1)
    assert found.wrong == ()
    assert found.facts["engine_products"] == {"Half": 4}


def test_a_planted_build_in_32_bits_is_caught_three_times() -> None:
    wide = [layer("gemm", "Float", "Float", "Float")] * 4
    found = judge("fp16", network("Float"), wide, 404_000_000, 1)
    assert len(found.wrong) == 3
    assert "0 are in fp16" in found.wrong[0]
    assert "0 do so in fp16" in found.wrong[1]
    assert "2.0 times" in found.wrong[2]


def test_each_kind_of_evidence_is_enough_alone() -> None:
    good, wide = [layer("gemm", "Half")] * 4, [layer("gemm", "Float", "Float", "Float")] * 4
    assert judge("fp16", network("Float", weights=1000), [], 1000, 1).wrong
    assert judge("fp16", network("Half", weights=1000), wide, 1000, 1).wrong
    assert judge("fp16", network("Half"), good, 404_000_000, 1).wrong


def test_without_any_layers_in_the_log_the_network_and_the_size_decide() -> None:
    assert judge("fp16", network("Half"), [], 204_000_000, 1).wrong == ()


def test_int8_needs_a_layer_that_multiplies_in_int8() -> None:
    quantized = network("Half", quantized=20)
    assert judge("int8", quantized, [layer("gemm", "Int8")], 100_000_000, 1).wrong == ()
    assert judge("int8", quantized, [layer("gemm", "Half")], 100_000_000, 1).wrong
    assert judge("int8", network("Half"), [layer("gemm", "Int8")], 100_000_000, 1).wrong


def test_what_is_wider_is_listed_with_the_reason() -> None:
    layers = [layer("gemm", "Half")] * 3 + [layer("gemm", "Float", "Float", "Float", name="odd")]
    layers.append(layer("kgen", "Half", "Float", name="__myl_Softmax"))
    found = judge("fp16", network("Half"), layers, 204_000_000, 1)
    assert found.wrong == ()
    assert "1 of 4 multiplying layers" in found.left[0] and "odd" in found.left[0]
    assert "softmax" in found.left[1]


@pytest.mark.parametrize("weights", [100, 1_000_000])
def test_small_networks_are_not_judged_by_their_size(weights: int) -> None:
    """Kernels outweigh the weights there."""
    found = judge("fp16", network("Half", weights=weights), [layer("gemm", "Half")], 30_000_000, 1)
    assert found.wrong == ()
