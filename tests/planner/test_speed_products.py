"""The products of a model as an engine runs them."""

from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.planner.speed.products import products

from .speed_cases import model


def test_query_key_value_are_one_product_and_gate_up_another() -> None:
    found = {(p.role, p.inputs, p.outputs): p.copies for p in products(model()).dense}
    assert found == {
        ("attention", 4096, 6144): 36,
        ("attention", 4096, 4096): 36,
        ("mlp", 4096, 24576): 36,
        ("mlp", 12288, 4096): 36,
        ("head", 4096, 151936): 1,
    }


def test_a_tied_head_is_computed_all_the_same() -> None:
    heads = [p for p in products(model("Qwen/Qwen3-0.6B")).dense if p.role == "head"]
    assert [(p.inputs, p.outputs, p.head) for p in heads] == [(1024, 151936, True)]


def test_an_embedding_model_has_no_head() -> None:
    assert not [p for p in products(model("Qwen/Qwen3-Embedding-0.6B")).dense if p.role == "head"]


@given(st.sampled_from([1, 2, 4, 8]))
def test_parts_of_a_model_add_up_to_the_whole(parts: int) -> None:
    whole = sum(p.parameters * p.copies for p in products(model()).dense)
    each = sum(p.parameters * p.copies for p in products(model(), tensor_parallel=parts).dense)
    assert each * parts == whole


def test_key_value_heads_are_repeated_when_there_are_more_gpus() -> None:
    qkv = next(p for p in products(model(), tensor_parallel=16).dense if p.role == "attention")
    assert qkv.outputs == 4096 // 16 + 2 * 1024 // 8


def test_experts_are_divided_by_width_or_by_number() -> None:
    name = "Qwen/Qwen3-30B-A3B"
    wide = products(model(name), tensor_parallel=4).mixtures[0]
    many = products(model(name), tensor_parallel=4, expert_parallel=True).mixtures[0]
    assert (wide.layers, wide.experts, wide.here, wide.active) == (48, 128, 128, 8)
    assert many.here == 32
    assert many.parameters == 4 * wide.parameters == 3 * 768 * 2048
