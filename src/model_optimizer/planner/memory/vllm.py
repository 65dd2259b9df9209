"""vLLM's accounting: what the budget is, what is taken from it, and what the KV cache gets."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, floor

from model_optimizer.core import Fit, FitQuestion, Setting, Term
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import memory, vllm
from model_optimizer.facts.versions import key

from . import activation, cache, encoder, graphs, storage, weights
from .limits import V0_WHOLE, Limits, choose, length_limit, release_of
from .split import Split, padded_vocabulary, require_possible
from .supported import require_supported

GIB = 2**30
FLASHINFER_BYTES_PER_LOGIT = 14
# From here on vLLM keeps slots for adapters of every routed expert (lora/layers/fused_moe.py).
EXPERT_ADAPTERS_FROM = "0.11.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One start, worked out. `available` is what the KV cache gets, below zero when there is none.

    `requested` is the share of the card that vLLM may fill, `taken` what counts against it. `uncounted`
    are buffers that vLLM allocates and does not count.
    """

    limits: Limits
    runner: str
    requested: int
    loaded: tuple[Term, ...]
    peak: Term
    graphs: Term
    graphs_counted: bool
    non_torch: tuple[Term, ...]
    buffers: Term
    buffers_counted: bool
    before: int
    layout: cache.Layout
    kinds: tuple[cache.LayerKind, ...]
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> int:
        return sum(term.bytes for term in self.loaded)

    @property
    def taken(self) -> int:
        counted = self.graphs.bytes if self.graphs_counted else 0
        counted += self.buffers.bytes if self.buffers_counted else 0
        return self.weights + self.peak.bytes + sum(t.bytes for t in self.non_torch) + counted

    @property
    def available(self) -> int:
        return self.requested - self.taken

    @property
    def blocks(self) -> int:
        return self.layout.blocks(self.available)

    @property
    def on_top(self) -> int:
        """What comes beside the budget: CUDA's context, and graphs and buffers that are not counted."""
        graphs_left = 0 if self.graphs_counted else self.graphs.bytes
        return self.before + graphs_left + (0 if self.buffers_counted else self.buffers.bytes)


def fit(question: FitQuestion) -> Fit:
    """Whether vLLM starts, and what it will print. UsageError for what it would refuse outright."""
    from .verdict import conclude

    together = question.tensor_parallel * question.data_parallel
    split = Split(
        tensor=question.tensor_parallel,
        stages=question.pipeline_parallel,
        experts=together if question.expert_parallel and question.model.experts else 0,
    )
    require_possible(question.model, split)
    version = question.version or vllm.versions()[-1]
    require_supported(question, version)
    rules = memory.vllm(version)
    release = release_of(version)
    start = _Start(question=question, split=split, version=version, rules=rules, release=release)
    account = start.account(question)
    if question.vram_bytes is not None and question.kv_cache_memory_bytes is None:
        account = start.within_budget(account, question.vram_bytes)
    limit = length_limit(question.model)
    longest = largest_length(account, start.account_of_length, limit) if question.longest else None
    known = rules.checked if release is None else release.exact
    return conclude(question, account, version=version, rules=rules, longest=longest, known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """Works out accounts of one question for different lengths and budgets.

    `known` keeps the weights, which no length changes.
    """

    question: FitQuestion
    split: Split
    version: str
    rules: memory.VllmMemory
    release: vllm.VllmRelease | None
    known: dict[str, tuple[Term, ...]] = field(default_factory=dict[str, tuple[Term, ...]])

    def account(self, question: FitQuestion, utilization: float | None = None) -> Account:
        rules, split, spec, gpu = self.rules, self.split, question.model, question.gpu
        limits = choose(question, rules, self.version, self.release)
        limits = limits if utilization is None else replace(limits, utilization=utilization)
        form = storage.precision(spec, question.scheme, plain_bytes(question))
        runner = _runner(question, rules, limits)
        peak, notes = self._peak(question, limits, runner, form)
        sizes = (
            ()
            if question.enforce_eager
            else graphs.capture_sizes(
                limits.max_num_seqs, limits.max_num_batched_tokens, step=rules.capture_step
            )
        )
        counted = runner in rules.graphs_counted and _env_flag(
            question, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", True
        )
        kinds = self._kinds(question, plain_bytes(question))
        step = limits.max_num_batched_tokens
        layout = cache.layout(
            kinds,
            cache.Rules(
                block_size=limits.block_size,
                step_tokens=step,
                windows=rules.hybrid_groups and limits.engine == "V1" and not _is_chunked(question),
                line=rules.kv_line if limits.engine == "V1" else "blocks",
            ),
        )
        non_torch, before = self._outside(question, limits)
        made = Account(
            limits=limits,
            runner=runner,
            requested=ceil(gpu.total_bytes * limits.utilization),
            loaded=self._loaded(question, form),
            peak=peak,
            graphs=graphs.memory(spec, split, sizes, memory.graphs(self.version), counted=counted),
            graphs_counted=counted,
            non_torch=non_torch,
            buffers=_buffers(question, limits, runner),
            buffers_counted=rules.accounting == "consumed" and limits.engine == "V1",
            before=before,
            layout=layout,
            kinds=kinds,
            notes=notes,
        )
        if question.kv_cache_memory_bytes is None:
            return made
        # Given outright: the budget is what the start takes, and the share only has to be free.
        return replace(made, requested=made.taken + question.kv_cache_memory_bytes)

    def account_of_length(self, length: int) -> Account:
        return self.account(replace(self.question, max_model_len=length))

    def within_budget(self, account: Account, budget: int) -> Account:
        """The same start with the utilization that keeps all of the process within the budget."""
        total = self.question.gpu.total_bytes
        share = floor(max(0, min(budget, total) - account.on_top) / total * 10_000) / 10_000
        made = self.account(self.question, utilization=share)
        settings = tuple(
            Setting(
                name=s.name,
                value=str(share),
                because=f"{show_bytes(budget)} hold it all, {show_bytes(account.on_top)} of it on top",
                source="derived",
            )
            if s.name == "gpu-memory-utilization"
            else s
            for s in made.limits.settings
        )
        return replace(made, limits=replace(made.limits, settings=settings))

    def _loaded(self, question: FitQuestion, form: storage.Precision) -> tuple[Term, ...]:
        if "weights" not in self.known:
            self.known["weights"] = self._load(question, form)
        return self.known["weights"]

    def _load(self, question: FitQuestion, form: storage.Precision) -> tuple[Term, ...]:
        spec, split = question.model, self.split
        padding = memory.padding(form.storage.name, question.gpu.compute_capability) if form.storage else None
        terms = list(weights.load(spec, split, form, padding).terms)
        if question.lora:
            experts = key(self.version) >= key(EXPERT_ADAPTERS_FROM)
            terms.append(weights.lora(spec, split, question.lora, form.plain_bytes, experts=experts))
        if question.mtp and question.model.mtp_parameters:
            terms.append(weights.ahead(question.model, split, form))
        if question.draft:
            own = storage.precision(question.draft, None, form.plain_bytes)
            terms.append(weights.draft(question.draft, split, own))
        return tuple(terms)

    def _peak(
        self, question: FitQuestion, limits: Limits, runner: str, form: storage.Precision
    ) -> tuple[Term, tuple[str, ...]]:
        """The peak of the profiling run, and what is worth knowing about it."""
        spec, rules = question.model, self.rules
        compiles = not question.enforce_eager and limits.engine == "V1"
        batch = activation.Batch(
            tokens=limits.max_num_batched_tokens,
            sequences=limits.max_num_seqs,
            max_model_len=limits.max_model_len,
            bytes_per_logit=bytes_per_logit(question, rules, runner),
            workspace_bytes=memory.workspace(question.gpu.compute_capability).bytes,
            element_bytes=form.plain_bytes,
            activation_bits=form.storage.activation_bits if form.storage else 16,
            copies_rows=runner == "V1",
            compiles=compiles,
            # Models with images embed outside of what is compiled.
            times_embedding=compiles
            and rules.compile_copies_embedding
            and not question.warm
            and spec.vision_parameters == 0,
            samples=spec.task == "generate",
            gathered=question.data_parallel if self.split.experts else 1,
        )
        found = list(activation.parts(spec, self.split, batch))
        notes: list[str] = []
        held = 0
        if runner in rules.profiles_encoder or runner == "V0":
            seen = encoder.profile(
                spec, max_num_batched_tokens=batch.tokens, element_bytes=batch.element_bytes
            )
            held = seen.held_bytes if seen else 0
            found = [replace(part, bytes=part.bytes + held) for part in found]
            found += [seen.part] if seen else []
        found.sort(key=lambda part: -part.bytes)
        widest, second = found[0], found[1]
        if widest.name == "compiler" and question.kv_cache_memory_bytes is None:
            saved = show_bytes(widest.bytes - second.bytes)
            notes.append(
                f"a start with compiled graphs in its cache has {saved} more for the KV cache (--warm)"
            )
        because = widest.because + (f"; outputs of the encoder {show_bytes(held)}" if held else "")
        source = "assumed" if widest.name == "vision encoder" else "derived"
        name = f"activation peak: {widest.name}"
        return Term(name=name, bytes=widest.bytes, because=because, source=source), tuple(notes)

    def _kinds(self, question: FitQuestion, element_bytes: int) -> tuple[cache.LayerKind, ...]:
        if question.model.task != "generate" and not _is_decoder(question):
            return ()
        dtype = question.kv_cache_dtype
        found = cache.kinds(question.model, self.split, dtype=dtype, element_bytes=element_bytes)
        if question.draft is None:
            return found
        return (*found, *cache.kinds(question.draft, self.split, dtype=dtype, element_bytes=element_bytes))

    def _outside(self, question: FitQuestion, limits: Limits) -> tuple[tuple[Term, ...], int]:
        """Memory that PyTorch does not see: what counts, and what was there before it is measured."""
        rules, capability = self.rules, question.gpu.compute_capability
        how = rules.accounting if limits.engine == "V1" else rules.v0_accounting
        terms: list[Term] = []
        if how in ("context", "reserved"):
            terms.append(_context_term("CUDA context and libraries", "whole", capability, self.version))
            if question.gpu.used_bytes:
                terms.append(
                    Term(
                        name="other processes",
                        bytes=question.gpu.used_bytes,
                        because="in use before the engine starts; this release counts it as its own",
                        source="user",
                    )
                )
            before = 0
        else:
            terms.append(_context_term("libraries outside of PyTorch", "growth", capability, self.version))
            there = memory.context("before", capability, self.version)
            before = there.context.bytes if there else 0
        if self.split.tensor > 1:
            shared = _context_term("NCCL and all-reduce buffers", "communication", capability, self.version)
            if rules.communication_counted or how in ("context", "reserved"):
                terms.append(shared)
            else:
                before += shared.bytes
        return tuple(terms), before


def plain_bytes(question: FitQuestion) -> int:
    """Bytes of a weight that is not quantized: engines serve 32-bit checkpoints in 16 bits by default."""
    return 4 if question.dtype == "fp32" else 2


def bytes_per_logit(question: FitQuestion, rules: memory.VllmMemory, runner: str) -> int:
    """What sampling holds for each logit while it is profiled."""
    if runner == "V2":
        return rules.v2_bytes_per_logit
    if runner == "V0":
        return rules.v0_bytes_per_logit
    asked = question.env.get("VLLM_USE_FLASHINFER_SAMPLER")
    if asked == "1":
        return FLASHINFER_BYTES_PER_LOGIT
    if asked == "0" and rules.sampler == "flashinfer" and rules.kv_line == "groups":
        return 38
    return rules.bytes_per_logit


def _runner(question: FitQuestion, rules: memory.VllmMemory, limits: Limits) -> str:
    """Which of vLLM's runners profiles this model: engine V0's own, V1, or V2."""
    if limits.engine == "V0":
        return "V0"
    asked = question.env.get("VLLM_USE_V2_MODEL_RUNNER")
    if rules.v2_runner == "never" or asked == "0":
        return "V1"
    if rules.v2_runner == "all" or asked == "1":
        return "V2"
    spec = question.model
    if spec.task != "generate":
        return "V1"
    quantized = spec.quantization is not None or question.scheme is not None
    if quantized and not rules.v2_quantized:
        return "V1"
    if spec.architecture in rules.v2_architectures:
        return "V2"
    hybrid = any(group.state_bytes for group in spec.groups)
    return "V2" if rules.v2_runner == "dense" and not spec.experts and not hybrid else "V1"


def _buffers(question: FitQuestion, limits: Limits, runner: str) -> Term:
    """Runner V2 keeps a count of every word for every sequence, for penalties."""
    if runner != "V2" or question.model.task != "generate":
        return Term(name="runner buffers", bytes=0, because="small", source="assumed")
    words = padded_vocabulary(question.model)
    total = limits.max_num_seqs * (words * 4 + words // 8)
    return Term(
        name="runner buffers",
        bytes=total,
        because=f"penalties: {limits.max_num_seqs:,} sequences x {words:,} words x 4.125 B",
        source="derived",
    )


def _context_term(name: str, kind: str, capability: tuple[int, int], version: str) -> Term:
    found = memory.context(kind, capability, version)  # pyright: ignore[reportArgumentType]
    if found is None:
        return Term(name=name, bytes=0, because="never seen", source="assumed")
    row = found.context
    seen = f"seen on {row.gpu} with vLLM {row.vllm}"
    return Term(
        name=name,
        bytes=row.bytes,
        because=seen if found.exact else f"{seen}, the nearest that is known",
        source="measured" if found.exact and not row.derived else "assumed",
    )


def _is_chunked(question: FitQuestion) -> bool:
    """Llama 4's layers attend within chunks; vLLM caches them whole unless it is told otherwise."""
    return question.model.model_type.startswith("llama4")


def _is_decoder(question: FitQuestion) -> bool:
    """Embedding models made of language models keep their KV cache, encoders have none."""
    return any(group.kv_bytes_per_token_16 for group in question.model.groups)


def _env_flag(question: FitQuestion, name: str, default: bool) -> bool:
    return question.env.get(name, "1" if default else "0") not in ("0", "false", "False")


def starts(account: Account) -> bool:
    """Whether one request of the longest length finds room."""
    return account.available > 0 and (
        not account.layout.groups
        or account.blocks >= account.layout.blocks_a_request(account.limits.max_model_len)
    )


def largest_length(account: Account, of_length: Callable[[int], Account], limit: int | None) -> int | None:
    """The longest context that would start, up to the model's limit; None when none would.

    In engine V1 the rest of the memory hardly depends on the length, in V0 it does, and falls where
    chunked prefill sets in: both sides of that point are searched.
    """
    top = limit or max(account.limits.max_model_len, 1 << 20)
    if not account.layout.groups:
        return top if account.available > 0 else None
    ranges = [(V0_WHOLE + 1, top), (1, min(V0_WHOLE, top))] if account.limits.engine == "V0" else [(1, top)]
    for low, high in ranges:
        found = _bisect(low, high, lambda length: starts(of_length(length)))
        if found is not None:
            return found
    return None


def _bisect(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The largest number for which it holds, given that it holds up to there; None when for none."""
    if low > high or not holds(low):
        return None
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
