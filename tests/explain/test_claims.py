"""Every claim is found by its own words, by the other ways that its row lists, and by how people ask."""

import pytest

from model_optimizer.core import MoptError
from model_optimizer.explain import claims
from model_optimizer.facts import folklore

from .asking import ask

ASKED: dict[str, tuple[str, str, str]] = {
    "gpu-util-sm-share": ("does GPU-Util show the share of busy SMs?", "nvidia-smi gpu utilization 100% = fully used?", "what is gpu util"),
    "vllm-localhost": ("does vllm serve only listen on localhost?", "is vLLM bound to 127.0.0.1 by default", "vllm listens on which address by default"),
    "vllm-no-windows": ("can I run vLLM natively on Windows?", "does vllm work on windows", "vllm native windows"),
    "pip-tensorrt-bindings": ("does pip install tensorrt bring only bindings", "pip install tensorrt trtexec", "is pip install tensorrt just the bindings?"),
    "dynamic-axes": ("torch.onnx.export dynamic_axes still right?", "is dynamic_axes outdated in torch onnx export", "dynamic axes in torch onnx exprot"),
    "a100-transformer-engine": ("does an A100 have the Transformer Engine?", "a100 transformer engine fp8", "A100 FP8 hardware"),
    "rtx4060-no-fp8": ("does the RTX 4060 laptop have FP8 tensor cores?", "no fp8 on rtx 4060", "4060 laptop fp16 tensor cores but fp8?"),
    "sm120-fictional": ("is sm_120 real?", "was compute capability 12.0 ever released", "sm_120 does not exist"),
    "runtime-not-newer-than-driver": ("must the CUDA runtime be older than the driver's CUDA version?", "cuda runtime newer than driver", "does the runtime version need to match the driver cuda version"),
    "driver535-baseline": ("is driver 535 the recommended baseline?", "should I still use driver 535", "driver 535 recommended"),
    "vllm0271-driver530": ("is host driver 535 enough for vllm 0.27.1?", "vllm v0.27.1 driver requirement 535", "driver 530 for vLLM 0.27.1"),
    "smi-cuda-version": ("what is the CUDA Version that nvidia-smi shows?", "nvidia-smi CUDA version is not the toolkit", "nvidia-smi cuda version vs toolkit installed"),
    "torch-cuda-false-ldpath": ("torch.cuda.is_available() false LD_LIBRARY_PATH", "is torch cuda is_available False because of ld_library_path", "torch cuda not available 90% LD_LIBRARY_PATH"),
    "container-cuda-from-driver": ("does a container use the CUDA runtime of the host driver?", "container loads cuda runtime from driver 535", "cuda runtime in container supplied by the host"),
    "libcuda-abi": ("libcuda.so.1 cannot open", "what does libcuda.so.1: cannot open mean", "libcuda.so.1 mismatch tensorrt cuda"),
    "setsebool-nvidia": ("setsebool container_use_nvidia", "container_use_nvidia boolean", "which selinux boolean lets containers use nvidia"),
    "secure-boot-off": ("does Secure Boot have to be off for modprobe nvidia?", "turn secure boot off nvidia", "secure boot nvidia module"),
    "default-runtime-nvidia": ("does daemon.json need default-runtime nvidia?", "default runtime nvidia for --gpus", "daemon.json default runtime nvidia needed"),
    "nvidia-ctk-replaces": ("does nvidia-ctk replace nvidia-docker2?", "nvidia-docker2 replaced by container toolkit", "nvidia-docker2 vs nvidia-ctk"),
    "wsl2-beta": ("is WSL2 GPU support still beta?", "nvidia-smi unreliable in WSL2", "wsl2 gpu beta"),
    "gpu-reset-before-start": ("should I run nvidia-smi --gpu-reset before each start?", "nvidia-smi --gpu-reset every start", "gpu reset before starting"),
    "dmon-u-bandwidth": ("nvidia-smi dmon -s u pcie", "does dmon -s u show PCIe bandwidth", "dmon s u memory bandwidth"),
    "nvreg-gpufirmware": ("NVreg_EnableGpuFirmware=0", "does NVreg_EnableGpuFirmware=0 disable firmware verification", "EnableGpuFirmware gsp off"),
    "int8-needs-calibration": ("does INT8 need calibration data in TensorRT?", "tensorrt refuses int8 without calibration", "int8 calibration data required"),
    "calib-npy": ("can --calib take a npy file?", "trtexec --calib data.npy", "--calib=data.npy"),
    "trtexec-workspace": ("trtexec --workspace=2048", "what happened to trtexec workspace", "trtexec workspace option 4096"),
    "tensorrt-no-dynamic": ("does TensorRT support dynamic shapes?", "tensorrt dynamic shapes unsupported", "TensorRT can't do dynamic shapes"),
    "opset-above-17": ("are opsets above 17 parsed by tensorrt?", "opset 18 cannot be parsed onnxsim", "onnxsim fixes opset > 17"),
    "executev2-sync": ("do I need cudaStreamSynchronize after executeV2?", "executeV2 cudaStreamSynchronize", "is executeV2 synchronous"),
    "trtllm-build-right": ("is trtllm-build still the right path?", "trtllm-build right way to serve tensorrt-llm", "should one use trtllm-build for serving"),
    "vllm-drives-trtllm": ("can vLLM's EngineCore drive a TensorRT-LLM engine?", "vllm executor tensorrt-llm engine", "run a tensorrt-llm engine inside vllm"),
    "block-size-memory": ("does --block-size 16 instead of 32 cut memory?", "block size 32 to 16 memory", "lower block-size reduces memory from 7.8 GB"),
    "page-divides-length": ("must the page size divide max_seq_len?", "kv page size divide max seq len", "does the block have to divide max_seq_len"),
    "disable-continuous-batching": ("can continuous batching be disabled in vllm?", "disable continuous batching ttft", "turn continuous batching off for low TTFT"),
    "enforce-eager-graphs": ("does --enforce-eager turn off CUDA graphs?", "enforce-eager cuda graphs", "enforce eager disables cuda graphs"),
    "graphs-hurt-small": ("do CUDA graphs hurt small models?", "cuda graphs small models", "are CUDA graphs harmful for small models"),
    "gpu-util-09": ("is the default gpu-memory-utilization 0.9?", "gpu_memory_utilization default", "default of gpu memory utilization"),
    "metric-cache-ratio": ("vllm:gpu_cache_usage_ratio metric", "is there a gpu_cache_usage_ratio", "where is gpu_cache_usage_ratio"),
    "stats-endpoint": ("does vLLM have /stats?", "vllm /stats endpoint", "stats endpoint of vllm server"),
    "prefix-caching-on": ("must prefix caching be switched on?", "prefix caching memory cost 15%", "does prefix caching need more memory"),
    "awq-online": ("can vLLM calibrate AWQ online?", "awq without a quantized checkpoint vllm", "does vllm calibrate awq by itself"),
    "embedding-ttft": ("should embeddings be measured in tokens per second?", "embedding model first token latency", "measure embedding model with ttft"),
    "kv-fp8-a100": ("does --kv-cache-dtype fp8 work on A100?", "a100 kv-cache-dtype fp8", "fp8 kv cache a100"),
    "tokenizer-cuda": ("can a tokenizer run on the GPU?", "tokenizer device='cuda'", "tokenizer on cuda"),
    "kv-formula-hidden": ("is KV cache = 2*B*L*layers*hidden*bytes?", "kv bytes formula with hidden size", "kv cache 2 x layers x hidden size"),
    "qwen3-hidden-896": ("is the hidden size of Qwen3-0.6B 896?", "qwen3-0.6b hidden size", "hidden size 896 qwen3"),
    "deepseek-v2-8gb": ("can DeepSeek-V2 be compressed into 8 GB?", "compress deepseek-v2 8 gb", "deepseek v2 on 8 GB"),
    "seqs-little": ("is max-num-seqs peak QPS times response time?", "max-num-seqs = qps x mean response time", "little's law for max num seqs"),
}  # fmt: skip


def best(text: str) -> str | None:
    found = claims.search(text)
    return found[0][0].id if found and found[0][1] >= claims.LEAST else None


def test_there_are_158_claims_each_with_an_answer() -> None:
    rows = folklore.claims()
    assert len(rows) == 158
    assert len({row.id for row in rows}) == 158
    assert sum(row.verdict == "false" for row in rows) == 94


@pytest.mark.parametrize("claim", folklore.claims(), ids=lambda c: c.id)
def test_each_claim_is_found_by_its_own_words(claim: folklore.Claim) -> None:
    for text in (claim.said, *claim.asked):
        assert best(text) == claim.id, text


@pytest.mark.parametrize("claim", folklore.claims(), ids=lambda c: c.id)
def test_what_ships_is_written_for_a_screen(claim: folklore.Claim) -> None:
    assert len(claim.said) < 110
    assert len(claim.why) < 330
    assert claim.why.endswith((".", "%", "/s"))


def test_enough_are_asked_in_other_words() -> None:
    assert len(ASKED) >= 40


@pytest.mark.parametrize("id_", ASKED)
def test_each_is_found_as_people_ask(id_: str) -> None:
    for text in ASKED[id_]:
        assert best(text) == id_, text


def test_the_answer_says_what_is_so_and_what_to_do() -> None:
    found = ask("Does vLLM listen on localhost by default?")
    assert found.kind == "claim"
    assert found.verdict == "false"
    assert "all interfaces" in found.means[0]
    assert found.do == ("vllm serve MODEL --host 127.0.0.1",)
    assert found.source


def test_a_verdict_on_other_words_than_those_that_were_asked_is_marked() -> None:
    own, other = ask("The A100 has a Transformer Engine"), ask("FP8 needs an H100")
    assert len(own.means) == 1
    assert other.verdict == "true" and "verdict is on the claim above" in other.means[-1]


@pytest.mark.parametrize("text", ["bananas are yellow", "how do I bake bread", "x" * 500, "?!?!"])
def test_what_nobody_claimed_has_no_answer(text: str) -> None:
    with pytest.raises(MoptError) as error:
        ask(text)
    assert error.value.exit_code == 1
    assert error.value.reference == "unknown-thing"


def test_words_with_a_slip_are_understood() -> None:
    assert best("does tensorrt support dynmic shapes") == "tensorrt-no-dynamic"
