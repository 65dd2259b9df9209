"""What an option or a format means on the GPU that is named."""

from collections.abc import Iterator

from model_optimizer.core import units
from model_optimizer.core.explanation import Point
from model_optimizer.facts import drivers, formats, memory, vllm

from .question import Question

BF16_FROM = (8, 0)
FORMATS = {
    "awq": "awq_int4", "awq_marlin": "awq_int4", "gptq": "gptq_int4", "gptq_marlin": "gptq_int4",
    "fp8": "fp8",
    "fp8_per_tensor": "fp8", "modelopt": "modelopt_fp8", "modelopt_fp4": "nvfp4", "mxfp4": "mxfp4",
    "mxfp8": "mxfp8", "bitsandbytes": "bitsandbytes", "gguf": "gguf", "nvfp4": "nvfp4",
}  # fmt: skip
"""vLLM's words for `--quantization`, and the format of the facts that each stands for."""


def points(name: str, value: str | None, question: Question) -> Iterator[Point]:
    """What holds for an option (with the value given, if one was) on the GPU that is named."""
    if question.gpu is None:
        return
    if name in ("--quantization", "-q") and value and value in FORMATS:
        yield from of_format(FORMATS[value], question, about=f"{name} {value}")
    if name == "--kv-cache-dtype" and value and value.startswith(("fp8", "nvfp4")):
        yield from of_format("kv_nvfp4" if "nvfp4" in value else "kv_fp8", question, about=f"{name} {value}")
    if name in ("--dtype", "--bf16") and (value or "bfloat16") in ("bfloat16", "bf16"):
        yield from _bf16(name, question)
    if name in ("--max-num-seqs", "--max-num-batched-tokens") and value is None:
        yield from _batch(name, question)
    if name == "--gpu-memory-utilization":
        yield from _share(value, question)
    if name in ("--tensor-parallel-size", "--tp_size", "--tp-size") and value not in (None, "1"):
        yield from _parallel(name, question)


def of_format(name: str, question: Question, *, about: str) -> Iterator[Point]:
    """How vLLM runs a format on the GPU."""
    gpu, capability = question.gpu, question.capability
    if gpu is None or capability is None:
        return
    version = question.version_of("vllm")
    fact = formats.find(name)
    support = formats.support(name, capability, vllm=version)
    where = f"{gpu.name} (compute capability {dotted(capability)})"
    says = {
        "native": f"{where} computes in {fact.title}",
        "weight-only": f"{where} loads {fact.title} and computes in 16 bits: it saves memory, and decoding "
        "gets faster as fewer bytes are read, but prompts do not",
        "no": f"vLLM does not run {fact.title} on {where}",
        "unknown": f"whether vLLM runs {fact.title} on {where} was not found",
    }[support]
    level = {"native": "fine", "weight-only": "warn", "no": "wrong", "unknown": "note"}[support]
    yield Point(about=about, level=level, says=says, source=f"facts/compatibility/formats/{name}")  # pyright: ignore[reportArgumentType]


def _bf16(name: str, question: Question) -> Iterator[Point]:
    gpu, capability = question.gpu, question.capability
    if gpu and capability and capability < BF16_FROM:
        yield Point(
            about=name,
            level="wrong",
            says=f"{gpu.name} is {dotted(capability)}; bfloat16 needs 8.0: take --dtype half",
            source="facts/compatibility/formats/bf16",
        )


def _batch(name: str, question: Question) -> Iterator[Point]:
    gpu = question.gpu
    release = vllm.release(question.version_of("vllm") or vllm.versions()[-1])
    if gpu is None or not release.batch:
        return
    tier = release.batch_for(memory_bytes=gpu.memory_bytes, gpu=gpu.name)
    value = tier.max_num_seqs if name == "--max-num-seqs" else tier.max_num_batched_tokens
    yield Point(
        about=name,
        level="note",
        says=f"left out, vLLM {release.version} takes {value} for the server on {gpu.name}",
        source=f"facts/compatibility/vllm/{release.version}",
    )


def _share(value: str | None, question: Question) -> Iterator[Point]:
    gpu = question.gpu
    release = vllm.release(question.version_of("vllm") or vllm.versions()[-1])
    try:
        share = float(value) if value else release.defaults.gpu_memory_utilization
    except ValueError:
        return
    if gpu and 0 < share <= 1:
        total, _ = memory.visible(gpu)
        says = (
            f"{share:g} of {gpu.name} is {units.show_bytes(round(share * total))}, taken at the start "
            "as a whole"
        )
        yield Point(about="--gpu-memory-utilization", level="note", says=says, source="facts/gpus")


def _parallel(name: str, question: Question) -> Iterator[Point]:
    gpu = question.gpu
    if gpu and gpu.nvlink_bytes_per_s == 0:
        says = f"{gpu.name} has no NVLink: each layer waits twice for PCIe; two replicas are often faster"
        yield Point(about=name, level="warn", says=says, source="facts/gpus")


def of_image(cuda: str, question: Question, *, about: str) -> Iterator[Point]:
    """Whether the driver that is named runs an image of that CUDA."""
    need = drivers.minimum(cuda)
    if question.driver is None:
        says = f"CUDA {cuda} inside: the host needs driver {need.driver_linux} or newer"
        yield Point(about=about, level="note", says=says, source="facts/compatibility/drivers")
    elif drivers.runs(question.driver, cuda):
        says = f"CUDA {cuda} runs on driver {question.driver}"
        yield Point(about=about, level="fine", says=says, source="facts/compatibility/drivers")
    else:
        says = f"CUDA {cuda} needs driver {need.driver_linux} or newer; this host has {question.driver}"
        yield Point(about=about, level="wrong", says=says, source="facts/compatibility/drivers")


def dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
