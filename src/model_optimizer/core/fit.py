"""Does it fit: the question and the answer of `mopt fit`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .model import ModelSpec
from .plan import Setting, Source, Term
from .scheme import Scheme

NumberFormat = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """One GPU as an engine sees it. `total_bytes` is what CUDA shows; `because` says where it is from.

    `used_bytes` is what other processes and a display hold. `share` is below 1 for a part of a card, such as
    a MIG instance: its part of bandwidth and computing too.
    """

    name: str
    total_bytes: int
    compute_capability: tuple[int, int]
    used_bytes: int = 0
    share: float = 1.0
    because: str = ""
    source: Source = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Slots for adapters: how many at once, and the largest rank."""

    slots: int = 1
    rank: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """What llama.cpp needs to know of a model: bytes of each layer, and what its cache holds a token.

    `input_bytes` is the embedding, `output_bytes` the head and last norm (a tied embedding is loaded a
    second time for it). `kv_widths` are the numbers of keys and values together a token and layer.
    `because` says where the sizes are from.
    """

    name: str
    architecture: str
    layers: tuple[int, ...]
    input_bytes: int
    output_bytes: int
    kv_widths: tuple[int, ...]
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_position: int | None = None
    window: int | None = None
    format: str = "gguf"
    because: str = ""
    source: Source = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """What stands behind the name of a model. `gguf` is set for a GGUF file, which says less of the model."""

    spec: ModelSpec
    gguf: GgufModel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuestion:
    """One engine process a GPU. What is None takes the default of the engine's version.

    `scheme` is the number format of the weights when it is not that of the checkpoint. `vram_bytes` is
    a budget for all that the process takes, instead of `gpu_memory_utilization`. `kv_cache_memory_bytes` is
    the KV cache of a GPU, where it is given and no rest is worked out. `offload_bytes` is host
    memory for KV cache. `gpu_layers` is how many layers llama.cpp puts on the GPU, None for all.
    `expert_parallel` spreads whole experts over the GPUs of all engines side by side. `mtp` loads the
    model's own layers that predict further tokens. `warm` is a start that finds its compiled graphs in the
    cache. `gguf` is the file that llama.cpp reads. Without `longest` the answer leaves out the longest
    context that would start, which takes most of the time.
    """

    model: ModelSpec
    gpu: GpuMemory
    engine: str = "vllm"
    version: str | None = None
    scheme: Scheme | None = None
    dtype: NumberFormat | None = None
    kv_cache_dtype: str = "auto"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    vram_bytes: int | None = None
    lora: Lora | None = None
    draft: ModelSpec | None = None
    mtp: bool = False
    offload_bytes: int = 0
    gpu_layers: int | None = None
    gguf: GgufModel | None = None
    warm: bool = False
    longest: bool = True
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Bytes are of one GPU, the fullest; tokens are of the engine. None: this engine has no such thing.

    `binding` is the term that breaks it when it does not fit, and what limits concurrency when it does.
    `kv_cache_tokens`, `max_concurrency` and `engine_lines` are what the engine will print, `error` what
    it will stop with. `largest_max_model_len` is the longest context that would start, up to the model's
    own limit; None when none would. `cuda_graph_bytes` come on top of the budget unless
    `cuda_graphs_counted`. `version_known` is False when the numbers follow the rules of another release.
    """

    fits: bool
    binding: str
    because: str
    weights_bytes: int
    activation_bytes: int
    cuda_graph_bytes: int
    non_torch_bytes: int
    kv_cache_bytes: int
    kv_bytes_per_token: int
    kv_cache_tokens: int
    max_concurrency: float
    largest_max_model_len: int | None
    terms: tuple[Term, ...]
    error: str | None = None
    engine_lines: tuple[str, ...] = ()
    model: str
    gpu: str
    gpus: int = 1
    engine: str
    engine_version: str | None = None
    version_known: bool = True
    scheme: str
    total_bytes: int
    budget_bytes: int
    max_model_len: int
    max_num_seqs: int | None = None
    cuda_graphs_counted: bool = False
    host_kv_bytes: int = 0
    host_kv_tokens: int = 0
    host_bytes: int = 0
    settings: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
