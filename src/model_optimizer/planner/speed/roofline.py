"""The time of a step from bytes, operations and a few constants of the GPU's generation.

Every product takes at least the time to read its weights and to compute; both run at a share of the peak that
was measured for the generation and the number format. Reading the KV cache, elementwise kernels, all-reduces
and the host's own work are added. The constants and their sources are in facts/speed.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model_optimizer.core import LayerGroup, UsageError
from model_optimizer.core.steps import Batch, StepTime
from model_optimizer.facts import speed
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.facts.speed import Generation, Kernel, Overhead, Shared

from .links import all_reduces
from .products import Mixture, Product, Products, products
from .setup import Format, Setup, format_of, require_support

if TYPE_CHECKING:
    from model_optimizer.core.calibration import Calibration

MICRO = 1e-6
MEMORY, COMPUTE, LAUNCH, NETWORK = "memory bandwidth", "compute", "launch overhead", "network"


@dataclass(frozen=True, slots=True)
class Timed:
    """A product in seconds: `fixed + tokens x moved` of memory, `tokens x computed` of computation."""

    copies: int
    launch: float
    fixed: float
    moved: float
    computed: float
    blend: float
    head: bool

    def seconds(self, tokens: float) -> float:
        memory, compute = self.fixed + tokens * self.moved, tokens * self.computed
        return self.copies * (self.launch + (memory**self.blend + compute**self.blend) ** (1 / self.blend))


@dataclass(frozen=True, slots=True)
class TimedMixture:
    """Routed experts in seconds; `each` is the time to read one expert."""

    shape: Mixture
    launch: float
    each: float
    moved: float
    computed: float
    blend: float
    spread: float

    def met(self, tokens: float) -> float:
        """How many experts of a layer a batch is expected to visit here."""
        missed = (1 - self.shape.active / self.shape.experts) ** (tokens * self.spread)
        return self.shape.here * (1 - missed)

    def seconds(self, tokens: float) -> float:
        memory = self.met(tokens) * self.each + tokens * self.moved
        compute = tokens * self.computed
        both = (memory**self.blend + compute**self.blend) ** (1 / self.blend)
        return self.shape.layers * (self.launch + both)


@dataclass(frozen=True, slots=True)
class TimedAttention:
    """One group of layers in seconds: reading a token of KV, computing with it, and a pair of the prefill."""

    layers: int
    window: int | None
    launch: float
    each_sequence: float
    read_token: float
    read_state: float
    compute_token: float
    prefill_launch: float
    pair: float
    pad: float

    def decode(self, batch: Batch) -> float:
        sequences, context = batch.sequences, batch.context
        seen = context if self.window is None else min(context, self.window)
        read = sequences * (seen * self.read_token + self.read_state)
        compute = sequences * batch.queries * seen * self.compute_token
        return self.layers * (self.launch + sequences * self.each_sequence + max(read, compute))

    def prefill(self, batch: Batch) -> float:
        mean = batch.pairs / batch.tokens
        seen = mean if self.window is None else min(mean, self.window)
        return self.layers * (self.prefill_launch + batch.tokens * (seen + self.pad) * self.pair)


@dataclass(frozen=True, slots=True)
class Roofline:
    """A StepModel. Make one with `roofline`; times of equal batches are remembered."""

    kind: str
    provenance: str
    dense: tuple[Timed, ...]
    mixtures: tuple[TimedMixture, ...]
    attention: tuple[TimedAttention, ...]
    layers: int
    passes: float
    moved: float
    reduces: int
    reduce_launch: float
    reduce_token: float
    stages: int
    eager: bool
    pooled: bool
    host: Overhead
    known: dict[tuple[float, float], float] = field(
        default_factory=dict[tuple[float, float], float], repr=False
    )

    def prefill_ms(self, tokens: int, *, sequences: int = 1, cached: int = 0) -> float:
        all_tokens = tokens * sequences
        pairs = all_tokens * (cached + tokens / 2)
        return self.mixed_ms(Batch(tokens=all_tokens, chunks=sequences, pairs=pairs))

    def decode_ms(self, sequences: float, context: float) -> float:
        return self.mixed_ms(Batch(sequences=sequences, context=context))

    def mixed_ms(self, batch: Batch) -> float:
        if self.stages > 1:
            batch = _share(batch, self.stages)
        device = self._products(batch) + self._attention(batch)
        launch, host = self._launch(batch), self._host(batch)
        device = max(device, launch)
        seconds = max(device, host) if self.host.overlap else device + host
        return seconds * 1e3 + self.host.gap_ms

    def explain(self, batch: Batch) -> StepTime:
        whole = self.mixed_ms(batch)
        batch = _share(batch, self.stages) if self.stages > 1 else batch
        parts = {MEMORY: 0.0, COMPUTE: 0.0, LAUNCH: 0.0, NETWORK: 0.0}
        tokens, rows = batch.positions, batch.rows
        for one in self.dense:
            count = rows if one.head else tokens
            memory = one.fixed + count * one.moved > count * one.computed
            parts[LAUNCH] += one.copies * one.launch
            parts[MEMORY if memory else COMPUTE] += one.seconds(count) - one.copies * one.launch
        for one in self.mixtures:
            memory = one.met(tokens) * one.each > tokens * one.computed
            parts[MEMORY if memory else COMPUTE] += one.seconds(tokens)
        for one in self.attention:
            if batch.sequences:
                parts[MEMORY] += one.decode(batch)
            if batch.tokens:
                parts[COMPUTE] += one.prefill(batch)
        parts[LAUNCH] += self.layers * self.passes
        parts[MEMORY] += tokens * self.moved
        parts[NETWORK] += self.reduces * (self.reduce_launch + tokens * self.reduce_token)
        parts[LAUNCH] += max(0.0, whole / 1e3 - sum(parts.values()))
        parts = {name: seconds * 1e3 for name, seconds in parts.items()}
        return StepTime(ms=whole, parts=parts, bound=max(parts, key=lambda name: parts[name]))

    def _products(self, batch: Batch) -> float:
        """Everything that depends on the number of tokens only."""
        tokens, rows = batch.positions, batch.rows
        found = self.known.get((tokens, rows))
        if found is None:
            found = sum(one.seconds(rows if one.head else tokens) for one in self.dense)
            found += sum(one.seconds(tokens) for one in self.mixtures)
            found += self.layers * self.passes + tokens * self.moved
            found += self.reduces * (self.reduce_launch + tokens * self.reduce_token)
            self.known[(tokens, rows)] = found
        return found

    def _attention(self, batch: Batch) -> float:
        seconds = 0.0
        for one in self.attention:
            if batch.sequences:
                seconds += one.decode(batch)
            if batch.tokens:
                seconds += one.prefill(batch)
        return seconds

    def _launch(self, batch: Batch) -> float:
        if self.eager:
            return self.layers * self.host.eager_layer_us * MICRO
        if self.pooled or batch.positions > self.host.captured_tokens:
            return self.layers * self.host.layer_us * MICRO
        return 0.0

    def _host(self, batch: Batch) -> float:
        return self.host.step_ms * 1e-3 + (batch.sequences + batch.chunks) * self.host.sequence_us * MICRO


def roofline(
    setup: Setup,
    *,
    shared: Shared | None = None,
    overhead: Overhead | None = None,
    calibration: "Calibration | None" = None,
) -> Roofline:
    """The model of a setup. UsageError when the GPU or the scheme on it is not known.

    `calibration` is what was measured on this very GPU; `shared` and `overhead` replace constants of the
    facts.
    """
    require_support(setup)
    if setup.gpu.peak_per_s("bf16") is None:
        raise UsageError(
            f"no speed is known for {setup.gpu.name}",
            cause=("its peak rate is not in the facts",),
            hint=("measure with `mopt bench` on the card itself",),
        )
    gpu, shared = setup.gpu, shared or speed.shared()
    kernels = speed.generation(gpu.compute_capability or (0, 0))
    overhead = overhead or speed.engine(setup.engine).at(setup.version)
    # Encoders and embedding models run without graphs of whole steps, whatever the batch.
    pooled = setup.model.task != "generate"
    if calibration is not None:
        from . import calibrated

        shared = calibrated.shared(shared, calibration, gpu)
        kernels = calibrated.apply(kernels, calibration, shared)
        overhead = calibrated.host(overhead, calibration, shared, pooled=pooled)
    parts = products(
        setup.model, tensor_parallel=setup.tensor_parallel, expert_parallel=setup.expert_parallel
    )
    dense = tuple(_timed(one, setup, kernels, shared) for one in parts.dense)
    reduces, launch, token = all_reduces(setup, kernels)
    return Roofline(
        kind=_kind(setup, kernels),
        provenance=_provenance(setup, kernels),
        dense=dense,
        mixtures=tuple(_timed_mixture(one, setup, kernels, shared) for one in parts.mixtures),
        attention=tuple(_timed_attention(group, setup, kernels, shared) for group in setup.model.groups),
        layers=setup.model.layers,
        passes=shared.passes * shared.pass_us * MICRO,
        moved=_elementwise_bytes(setup, parts) / (gpu.bandwidth_bytes_per_s * shared.pass_bandwidth),
        reduces=reduces,
        reduce_launch=launch,
        reduce_token=token,
        stages=setup.pipeline_parallel,
        eager=setup.eager,
        pooled=pooled,
        host=overhead,
    )


def sixteen_bit_rate(gpu: GpuFact) -> float:
    """Operations a second of large products in 16 bits on one GPU. UsageError when it is not known."""
    peak = gpu.peak_per_s("bf16")
    if peak is None:
        raise UsageError(f"no speed is known for {gpu.name}", cause=("its peak rate is not in the facts",))
    kernels, shared = speed.generation(gpu.compute_capability or (0, 0)), speed.shared()
    return peak * _reached(kernels.gemm["bf16"], gpu, kernels, shared) * shared.sustained


def _share(batch: Batch, stages: int) -> Batch:
    """A pipeline works on as many batches at once as it has stages, each a share of the whole."""
    return Batch(
        sequences=batch.sequences / stages,
        context=batch.context,
        tokens=batch.tokens,
        chunks=batch.chunks,
        pairs=batch.pairs,
        queries=batch.queries,
    )


def _kind(setup: Setup, kernels: Generation) -> str:
    if setup.engine != "vllm":
        return "other-engine"
    return "roofline-borrowed" if kernels.borrowed else "roofline"


def _provenance(setup: Setup, kernels: Generation) -> str:
    where = f"kernels measured on {kernels.measured_on}"
    if kernels.borrowed:
        where = f"kernels of {kernels.measured_on}, the nearest generation that was measured"
    return f"roofline: {where}, bandwidth and peak of {setup.gpu.name}"


def _kernel(found: Format, kernels: Generation, shared: Shared) -> Kernel:
    """The constants of a format; those of 16 bits with a penalty where weights are expanded first."""
    plain = kernels.gemm["bf16"]
    if found.kernel == "weight_only":
        return Kernel(
            launch_us=plain.launch_us + shared.weight_only_launch_us,
            bandwidth=plain.bandwidth * shared.weight_only_bandwidth,
            compute=plain.compute * shared.weight_only_compute,
            blend=plain.blend,
        )
    fallback = kernels.gemm.get("fp8", plain)
    return kernels.gemm.get(found.kernel, fallback)


def _peak(found: Format, gpu: GpuFact, scheme: str) -> float:
    plain = gpu.peak_per_s("bf16") or gpu.peak_per_s("int8") or 0.0
    if not found.native or found.kernel == "bf16":
        return plain / (2 if found.bytes == 4 else 1)
    number = "int8" if scheme == "int8" else "fp4" if found.kernel in ("nvfp4", "mxfp4") else "fp8"
    return gpu.peak_per_s(number) or plain


def _reached(kernel: Kernel, gpu: GpuFact, kernels: Generation, shared: Shared) -> float:
    """The share of its peak that this GPU reaches with a kernel.

    Tensor cores are limited by power: a part with the same peak and less power runs slower, and one whose
    tensor cores were cut (GeForce, L20) runs near its peak.
    """
    peak = gpu.dense_tflops.bf16
    if peak is None or gpu.tdp_w is None or kernels.watts_per_tflops <= 0:
        return kernel.compute
    relief = (gpu.tdp_w / peak / kernels.watts_per_tflops) ** 0.5
    return min(max(shared.compute_ceiling, kernel.compute), kernel.compute * relief)


def _timed(one: Product, setup: Setup, kernels: Generation, shared: Shared) -> Timed:
    found = format_of(setup, one.role)
    kernel, gpu = _kernel(found, kernels, shared), setup.gpu
    read = gpu.bandwidth_bytes_per_s * kernel.bandwidth
    activations = min(found.bytes, 2) if found.native else 2
    rate = _peak(found, gpu, setup.scheme.name) * _reached(kernel, gpu, kernels, shared) * shared.sustained
    return Timed(
        copies=one.copies,
        launch=kernel.launch_us * MICRO,
        fixed=one.parameters * found.bytes / read,
        moved=(one.inputs * activations + one.outputs * 2) / read,
        computed=2 * one.parameters / rate,
        blend=kernel.blend,
        head=one.head,
    )


def _timed_mixture(one: Mixture, setup: Setup, kernels: Generation, shared: Shared) -> TimedMixture:
    found, gpu = format_of(setup, "expert"), setup.gpu
    kernel = kernels.moe.get(found.kernel)
    if kernel is None:
        blocks = kernels.moe.get("fp8_block") if found.kernel == "fp8" else None
        kernel = blocks or kernels.moe.get("bf16") or _kernel(found, kernels, shared)
    read = gpu.bandwidth_bytes_per_s * kernel.bandwidth
    # The constants of a mixture's kernel for 4-bit weights are shares of the 16-bit peak.
    rate = _peak(found, gpu, setup.scheme.name) if found.native and found.kernel != "mxfp4" else None
    rate = (rate or gpu.peak_per_s("bf16") or 0.0) * _reached(kernel, gpu, kernels, shared) * shared.sustained
    here = one.active * one.here / one.experts
    return TimedMixture(
        shape=one,
        launch=kernel.launch_us * MICRO,
        each=one.parameters * found.bytes / read,
        moved=here * one.hidden * 4 / read,
        computed=2 * here * one.parameters / rate,
        blend=kernel.blend,
        spread=kernel.spread,
    )


def _timed_attention(group: LayerGroup, setup: Setup, kernels: Generation, shared: Shared) -> TimedAttention:
    gpu, model = setup.gpu, setup.model
    fp8 = setup.kv_bits == 8
    decode = kernels.decode_attention.get("fp8" if fp8 else "bf16", kernels.decode_attention["bf16"])
    prefill = kernels.prefill_attention["bf16"]
    read = gpu.bandwidth_bytes_per_s * decode.bandwidth
    peak = (gpu.peak_per_s("bf16") or 1.0) * shared.sustained
    heads = -(-model.heads // setup.tensor_parallel)
    parts = 1 if group.kind == "mla" else min(setup.tensor_parallel, max(group.kv_heads, 1))
    token = group.kv_bytes_per_token_16 * setup.kv_bits / 16 / parts + group.index_bytes_per_token
    attends = group.kind not in ("linear", "none")
    width = group.head_dim or model.head_dim
    # An encoder keeps no cache, and its tokens look both ways: twice the pairs of a causal prompt.
    ways = 1 if group.kv_bytes_per_token_16 else 2
    return TimedAttention(
        layers=group.layers,
        window=group.window,
        launch=decode.launch_us * MICRO,
        each_sequence=decode.per_sequence_us * MICRO,
        read_token=token / read if attends else 0.0,
        read_state=2 * group.state_bytes / setup.tensor_parallel / read,
        compute_token=4 * heads * width / (peak * prefill.compute) if attends else 0.0,
        prefill_launch=prefill.launch_us * MICRO,
        pair=ways * 4 * heads * (model.head_dim if group.kind == "mla" else width) / (peak * prefill.compute)
        if attends
        else 0.0,
        pad=prefill.pad_tokens,
    )


def _elementwise_bytes(setup: Setup, parts: Products) -> float:
    """Bytes a token that norms, activations, positions and cache writes move in all layers together."""
    model = setup.model
    inner = sum(p.outputs * p.copies for p in parts.dense if p.role in ("attention", "mlp", "mixer"))
    routed = sum(m.layers * m.active * 3 * m.parameters / m.hidden / 3 for m in parts.mixtures)
    return 16 * model.hidden_size * model.layers + 4 * inner + 4 * routed
