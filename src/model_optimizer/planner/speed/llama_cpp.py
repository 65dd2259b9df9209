"""The time of a step of llama.cpp: quantized bytes are read, layers left in host memory are the CPU's.

A step reads every weight once, on the GPU those of its layers and on the CPU those of the rest. Quantized
weights are multiplied as 8-bit integers. With enough tokens in a step, layers in host memory are copied to
the GPU and computed there. Constants and their sources are in facts/speed/llama_cpp.toml.
"""

import re
from dataclasses import dataclass

from model_optimizer.core import GgufModel, ModelSpec, UsageError
from model_optimizer.core.steps import Batch, StepTime
from model_optimizer.facts import speed
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.speed import LlamaCpp

from .links import LANES

GPU, HOST, COMPUTE, COPY = "memory bandwidth", "host memory", "compute", "PCIe"
LAUNCH = "launch overhead"
# Bits a weight of GGUF formats by their first digit, with scales; middle of the variants.
BITS = {"1": 1.8, "2": 2.9, "3": 3.7, "4": 4.7, "5": 5.6, "6": 6.6, "8": 8.5}
FLOATS = {"F16": 16.0, "BF16": 16.0, "F32": 32.0, "MXFP4": 4.3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one device reads and computes a step: bytes, parameters a token visits, cache bytes a token.

    `active` is the share of the weights that one token visits, 1 without experts.
    """

    bytes: float
    active: float
    parameters: float
    cache_token: float
    layers: int

    def visited(self, tokens: float) -> float:
        """Bytes that a step of so many tokens reads."""
        return self.bytes * (1 - (1 - self.active) ** max(tokens, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSteps:
    """A StepModel of one llama.cpp process."""

    kind: str
    provenance: str
    gpu: Part
    host: Part
    head: float
    head_on_gpu: bool
    bandwidth: float
    integer: float
    floating: float
    lanes: float
    quantized: bool
    attention: float
    rates: LlamaCpp

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        every = tokens * sequences
        return self.mixed_ms(Batch(tokens=every, chunks=sequences, pairs=every * (cached + tokens / 2)))

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.mixed_ms(Batch(sequences=sequences, context=context))

    def mixed_ms(self, batch: Batch) -> float:
        return sum(self._parts(batch).values())

    def explain(self, batch: Batch) -> StepTime:
        parts = self._parts(batch)
        return StepTime(ms=sum(parts.values()), parts=parts, bound=max(parts, key=lambda name: parts[name]))

    def _parts(self, batch: Batch) -> dict[str, float]:
        """Milliseconds; one device works after the other."""
        rates, tokens = self.rates, batch.positions
        passes = max(1.0, tokens / rates.micro_batch)
        parts: dict[str, float] = {GPU: 0.0, HOST: 0.0, COMPUTE: 0.0, COPY: 0.0}
        read = (
            self.gpu.visited(tokens / passes) * passes
            + batch.sequences * batch.context * self.gpu.cache_token
        )
        parts[GPU] = 1e3 * read / self.bandwidth
        parts[COMPUTE] = 1e3 * (2 * tokens * self.gpu.parameters / self._rate(tokens / passes))
        parts[COMPUTE] += 1e3 * batch.pairs * self.attention / (self.floating * rates.float_compute)
        self._host(batch, passes, parts)
        self._head(batch, parts)
        parts[LAUNCH] = rates.gap_ms * passes
        return {name: ms for name, ms in parts.items() if ms > 0}

    def _rate(self, tokens: float) -> float:
        """Operations a second of the GPU's products."""
        if not self.quantized:
            return self.floating * self.rates.float_compute
        few = tokens <= self.rates.few_sequences
        return self.integer * (self.rates.few_compute if few else self.rates.many_compute)

    def _host(self, batch: Batch, passes: float, parts: dict[str, float]) -> None:
        """Layers in host memory: on the CPU, or copied over where a step has tokens enough."""
        if not self.host.layers:
            return
        rates, tokens = self.rates, batch.positions
        memory = rates.host_bytes_per_s * rates.host_bandwidth
        cache = batch.sequences * batch.context * self.host.cache_token
        cache += batch.pairs / max(batch.tokens, 1) * self.host.cache_token * batch.chunks
        compute = 1e3 * 2 * tokens * self.host.parameters / rates.host_flops
        reading = 1e3 * (self.host.visited(tokens / passes) * passes + cache) / memory
        here = max(compute, reading)
        copied = 1e3 * self.host.visited(tokens / passes) * passes / self.lanes
        there = copied + 1e3 * 2 * tokens * self.host.parameters / self._rate(tokens / passes)
        if tokens / passes >= rates.offload_from and there < here:
            parts[COPY] += copied
            parts[COMPUTE] += there - copied
        else:
            parts[HOST] += here

    def _head(self, batch: Batch, parts: dict[str, float]) -> None:
        """The output head runs for the positions whose token is wanted."""
        if self.head_on_gpu:
            parts[GPU] += 1e3 * self.head / self.bandwidth
        else:
            parts[HOST] += 1e3 * self.head / (self.rates.host_bytes_per_s * self.rates.host_bandwidth)


def bits(name: str) -> float:
    """Bits a weight of a GGUF format by its name: Q4_K_M, IQ3_XS, Q8_0, F16. Unknown names count as 4.7."""
    found = re.search(r"F32|BF16|MXFP4|F16|I?Q(\d)", name.upper())
    if found is None:
        return BITS["4"]
    return FLOATS.get(found[0]) or BITS.get(found[1] or "4", BITS["4"])


def steps(
    model: GgufModel, spec: ModelSpec, gpu: GpuFact, *, layers: int, cache_bits: float = 16.0
) -> LlamaSteps:
    """`layers` as `-ngl` counts them: the last ones and the head. UsageError when the card's rate is unknown.

    Of a mixture of experts a step reads the experts that its tokens visit.
    """
    rates = speed.llama_cpp()
    floating, integer = _peaks(gpu, rates)
    every, width = len(model.layers), bits(model.format)
    inside = min(layers, every)
    active = spec.active_parameters / spec.parameters if spec.parameters and spec.experts else 1.0
    lanes, _, count = (gpu.pcie or "4.0 x16").partition(" x")
    return LlamaSteps(
        kind="llama.cpp",
        provenance=_provenance(model, gpu, every - inside),
        gpu=_part(model, range(every - inside, every), width, active, cache_bits),
        host=_part(model, range(every - inside), width, active, cache_bits),
        head=model.output_bytes,
        head_on_gpu=layers > every,
        bandwidth=gpu.bandwidth_bytes_per_s * rates.bandwidth_on(gpu.architecture),
        integer=integer,
        floating=floating,
        lanes=LANES.get(lanes[:1], LANES["4"]) * int(count or 16) * 0.8,
        quantized=width < 16,
        attention=4.0 * (spec.heads * spec.head_dim or model.hidden_size) * inside,
        rates=rates,
    )


def sixteen_bit_rate(gpu: GpuFact) -> float:
    """Operations a second of products whose weights are not quantized."""
    rates = speed.llama_cpp()
    return _peaks(gpu, rates)[0] * rates.float_compute


def _peaks(gpu: GpuFact, rates: LlamaCpp) -> tuple[float, float]:
    """Operations a second in 16 and in 8 bits; by the number of cores where no peak is known (DP4A: four)."""
    known = gpu.peak_per_s("bf16")
    if known is not None:
        return known, gpu.peak_per_s("int8") or 2 * known
    if gpu.cuda_cores is None:
        raise UsageError(f"no speed is known for {gpu.name}", cause=("its peak rate is not in the facts",))
    return (plain := 2 * gpu.cuda_cores * rates.clock_hz), 4 * plain


def _part(model: GgufModel, chosen: range, width: float, active: float, cache_bits: float) -> Part:
    size = float(sum(model.layers[n] for n in chosen))
    return Part(
        bytes=size,
        active=active,
        parameters=size * active * 8 / width,
        cache_token=sum(model.kv_widths[n] for n in chosen) * cache_bits / 8,
        layers=len(chosen),
    )


def _provenance(model: GgufModel, gpu: GpuFact, left: int) -> str:
    peak = "peak" if gpu.dense_tflops.bf16 else "an assumed clock"
    text = f"roofline of llama.cpp: {model.format}, bandwidth and {peak} of {gpu.name}"
    return text + (f"; {left} layers in host memory of an assumed 51 GB/s" if left else "")
