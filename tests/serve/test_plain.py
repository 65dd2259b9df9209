"""A plan for what nobody planned for."""

import pytest

from model_optimizer.core import Artifact, Cpu, Gpu, Host, HostError, UsageError, plugins
from model_optimizer.serve import Wish, plain_plan
from model_optimizer.testing.engine_contract import sample_model

ENGINES = plugins.load_all("model_optimizer.engines")
SCHEMES = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}
HOST = Host(cpu=Cpu(cores=2))


def artifact(form: str, scheme: str, task: str) -> Artifact:
    return Artifact(path="/a", format=form, scheme=scheme, task=task, bytes=1, digest="sha256:0")


@pytest.mark.parametrize(
    ("form", "scheme", "task", "engine"),
    [
        ("safetensors", "fp32", "generate", "pytorch"),
        ("safetensors", "bf16", "embed", "pytorch"),
        ("onnx_genai", "int4_rtn", "generate", "onnxruntime"),
        ("onnx", "int8", "embed", "onnxruntime"),
    ],
)
def test_the_engine_is_the_one_that_reads_the_format(form: str, scheme: str, task: str, engine: str) -> None:
    found = plain_plan(
        sample_model(task), artifact(form, scheme, task), Wish(), HOST, engines=ENGINES, schemes=SCHEMES
    )
    assert (found.engine, found.scheme, found.format) == (engine, scheme, form)
    assert found.workload.task == task
    assert found.setting("threads") in ("2", None)


@pytest.mark.parametrize(
    ("scheme", "task", "asked", "engine"),
    [
        ("fp16", "embed", None, "onnxruntime_cuda"),
        ("fp32", "vision", None, "onnxruntime_cuda"),
        ("fp32", "rerank", "onnxruntime", "onnxruntime"),
        ("int8", "embed", None, "onnxruntime"),
    ],
)
def test_a_gpu_that_is_there_computes_a_graph(scheme: str, task: str, asked: str | None, engine: str) -> None:
    host = Host(cpu=Cpu(cores=2), gpus=(Gpu(name="L4", compute_capability=(8, 9)),))
    made = artifact("onnx", scheme, task)
    found = plain_plan(sample_model(task), made, Wish(engine=asked), host, engines=ENGINES, schemes=SCHEMES)
    assert (found.engine, found.environment) == (engine, ENGINES[engine].ENVIRONMENT)


@pytest.mark.parametrize(
    ("driver", "engine"), [("580.65.06", "onnxruntime_cuda"), ("535.183.01", "onnxruntime")]
)
def test_a_driver_that_does_not_run_the_cuda_leaves_the_graph_on_the_cpu(driver: str, engine: str) -> None:
    gpus = (Gpu(name="L4", compute_capability=(8, 9)),)
    host = Host(cpu=Cpu(cores=2), gpus=gpus, driver_version=driver)
    made = artifact("onnx", "fp16", "embed")
    found = plain_plan(sample_model("embed"), made, Wish(), host, engines=ENGINES, schemes=SCHEMES)
    assert found.engine == engine


def test_a_graph_is_not_yet_an_engine_of_tensorrt() -> None:
    host = Host(cpu=Cpu(cores=2), gpus=(Gpu(name="L4", compute_capability=(8, 9)),))
    made = artifact("onnx", "fp16", "embed")
    wish = Wish(engine="tensorrt")
    with pytest.raises(UsageError, match="`tensorrt` does not serve onnx in fp16") as caught:
        plain_plan(sample_model("embed"), made, wish, host, engines=ENGINES, schemes=SCHEMES)
    assert caught.value.hint[0] == "onnxruntime, onnxruntime_cuda can"


def test_a_user_may_name_engine_scheme_and_settings() -> None:
    wish = Wish(engine="vllm_cpu", scheme="bf16", settings={"max_model_len": "512", "host": "0.0.0.0"})
    made = artifact("safetensors", "fp32", "generate")
    found = plain_plan(sample_model("generate"), made, wish, HOST, engines=ENGINES, schemes=SCHEMES)
    assert (found.engine, found.scheme) == ("vllm_cpu", "bf16")
    assert found.setting("max_model_len") == "512"
    mine = [s for s in found.settings if s.source == "user"]
    assert {s.name for s in mine} == {"max_model_len", "host"}
    assert sum(s.name == "max_model_len" for s in found.settings) == 1


def test_an_engine_that_cannot_is_refused_with_those_that_can() -> None:
    with pytest.raises(UsageError, match="`pytorch` does not serve onnx in int8") as caught:
        plain_plan(
            sample_model("embed"),
            artifact("onnx", "int8", "embed"),
            Wish(engine="pytorch"),
            HOST,
            engines=ENGINES,
            schemes=SCHEMES,
        )
    assert caught.value.hint[0] == "onnxruntime can"


def test_a_scheme_that_must_be_made_first_says_how() -> None:
    with pytest.raises(
        UsageError, match="no engine of this machine serves safetensors in int4_rtn"
    ) as caught:
        plain_plan(
            sample_model("generate"),
            artifact("safetensors", "fp32", "generate"),
            Wish(scheme="int4_rtn"),
            HOST,
            engines=ENGINES,
            schemes=SCHEMES,
        )
    assert "mopt quantize MODEL --scheme int4_rtn" in caught.value.hint[0]


def test_what_was_made_for_a_gpu_is_not_to_be_made_once_more() -> None:
    made = artifact("compressed_tensors", "int8_weight", "generate")
    with pytest.raises(UsageError, match="no engine of this machine serves") as caught:
        plain_plan(sample_model("generate"), made, Wish(), HOST, engines=ENGINES, schemes=SCHEMES)
    assert "vllm can, on a GPU, and there is none here" in caught.value.cause[0]
    assert "make it first" not in caught.value.hint[0]


def test_what_the_processor_cannot_compute_is_refused_before_a_start() -> None:
    made = artifact("compressed_tensors", "awq_int4", "generate")

    def planned(*features: str) -> str:
        host = Host(cpu=Cpu(cores=2, features=features or None))
        return plain_plan(
            sample_model("generate"), made, Wish(), host, engines=ENGINES, schemes=SCHEMES
        ).engine

    assert planned("avx2", "avx512f") == planned() == "vllm_cpu"
    with pytest.raises(HostError, match="cannot compute `awq_int4` on this machine") as caught:
        planned("avx2")
    assert caught.value.cause == ("4-bit integers take AVX-512, and the processor has none",)
