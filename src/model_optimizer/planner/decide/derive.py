"""Every setting of a plan with its reason, and the page of a notebook behind the ones that were derived."""

import math

from model_optimizer.core import Estimate, Source
from model_optimizer.core.steps import Batch
from model_optimizer.core.units import show_bytes, show_count, show_ms
from model_optimizer.facts import decisions, vllm
from model_optimizer.planner.memory.cache import held
from model_optimizer.planner.speed import links

from . import extras, steady
from .candidates import ONLINE, PLAIN, own_scheme, projector_of, sees_images
from .judge import Judged, in_flight, load_of, tail_tpot, wanted_sequences
from .notes import Derived, Notes, by
from .place import LENGTH_STEP, defaults, rules_version
from .question import PlanQuestion


def derive(question: PlanQuestion, judged: Judged, estimate: Estimate) -> Derived:
    """Settings by vLLM's names; other engines translate them. llama.cpp has its own.

    `estimate` is the load played through, beside what the steady state says.
    """
    notes = Notes()
    if judged.candidate.engine == "llama_cpp":
        _llama(question, judged, notes)
    elif judged.candidate.engine in ("tensorrt", "tensorrt_rtx"):
        _shapes(question, judged, notes)
    else:
        for part in (_number_format, _length, _memory, _sequences):
            part(question, judged, notes)
        _batch(question, judged, estimate, notes)
        _parallel(question, judged, notes)
        _cache(question, judged, notes)
        extras.add(question, judged, notes)
    return Derived(settings=tuple(notes.settings), derivations=tuple(notes.derivations))


def _shapes(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    """The shapes that a network is built for."""
    config = question.model.config or {}
    if question.model.task == "vision":
        side, channels = config.get("image_size"), config.get("num_channels", 3)
        if isinstance(side, int):
            notes.set("image", f"{channels}x{side}x{side}", "config.json of the model", "derived")
        notes.set("max_batch_size", judged.room.seqs, "images that are there at once", "derived")
        return
    kinds = config.get("type_vocab_size")
    names = ["input_ids", "attention_mask"]
    names += ["token_type_ids"] if isinstance(kinds, int) and kinds > 1 else []
    notes.set("inputs", ",".join(names), "what the exported network takes", "derived")
    notes.set("max_model_len", judged.room.length, "the longest text of the load", "derived")
    notes.set("max_batch_size", judged.room.seqs, "texts that are there at once", "derived")


def _number_format(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    candidate = judged.candidate
    scheme, own = candidate.scheme, own_scheme(question.model)
    asked: Source = "user" if question.wishes.scheme or question.wishes.dtype else "derived"
    if scheme.name in PLAIN:
        word = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[scheme.name]
        said = question.model.dtype is not None
        stored = "as the checkpoint is stored" if said else "how the checkpoint is stored is not known here"
        because = stored if scheme.name == own else _sixteen(question, own)
        notes.set("dtype", word, because, asked)
    elif scheme.name in ONLINE and own in PLAIN:
        because = f"weights in {scheme.name} are made of the 16-bit checkpoint while it loads"
        notes.set("quantization", ONLINE[scheme.name], f"{because}; {candidate.ability.because}", asked)
    loss = decisions.qualities().get(scheme.name)
    notes.write(
        "number format",
        constraint=f"{scheme.name} on {question.site.gpu}: {candidate.ability.how}",
        formula="parameters x bits / 8 / GPUs of a replica",
        numbers=(
            f"{question.model.parameters / 1e9:.3g} G x {scheme.weight_bits} bits / 8 / {candidate.gpus} "
            f"= {show_bytes(judged.room.fit.weights_bytes)} a GPU, as the engine loads it"
        ),
        conclusion=f"{scheme.title}: {candidate.ability.because}; {loss.because if loss else scheme.title}",
        source=candidate.ability.source,
    )


def _sixteen(question: PlanQuestion, own: str | None) -> str:
    capability = question.site.compute_capability or (0, 0)
    if own == "bf16" and capability < (8, 0):
        return (
            "the checkpoint is in BF16, which compute capability "
            f"{capability[0]}.{capability[1]} does not have"
        )
    return f"the checkpoint is in {own or 'another format'}; engines compute it in 16 bits"


def _length(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    work, length, fit = question.workload, judged.room.length, judged.room.fit
    if question.wishes.max_model_len:
        notes.set("max-model-len", length, "as asked", "user")
        return
    parts = f"prompts up to {work.prompt_tokens.quantile(0.999):,}"
    if question.generates:
        parts += f" + answers up to {work.output_tokens.quantile(0.999):,} tokens"
        parts += f" + an image of {question.image_room:,}" if question.image_room else ""
    source: Source = "assumed" if "prompt_tokens" in question.assumed else "derived"
    limit = question.model.max_position
    whole = "prompt P99.9 + output P99.9" if question.generates else "text P99.9"
    least = int(decisions.rule("least-context" if question.generates else "least-text").value)
    of_model = f"; the model could do {limit:,}" if limit else ""
    if question.stretched is not None:
        of_model = f"; YaRN makes room for it, {question.stretched:g} times what the model was trained for"
    notes.set("max-model-len", length, f"99.9 % of requests: {parts}{of_model}", source)
    notes.write(
        "context length",
        constraint="99.9 % of requests fit, and no more: each token "
        f"costs {show_bytes(fit.kv_bytes_per_token)} a GPU",
        formula=f"round up({whole}, {LENGTH_STEP}), at least {least:,}",
        numbers=f"{parts}: {length:,} tokens",
        conclusion=(
            f"--max-model-len {length}"
            + (f"; {fit.largest_max_model_len:,} would start" if fit.largest_max_model_len else "")
        ),
        source="derived",
    )


def _memory(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    room, fit, wishes = judged.room, judged.room.fit, question.wishes
    version = rules_version(judged.candidate)
    default = defaults(question, version).utilization
    used = question.card.used_bytes
    share = room.utilization
    if wishes.gpu_memory_utilization:
        notes.set("gpu-memory-utilization", wishes.gpu_memory_utilization, "as asked", "user")
    elif judged.candidate.engine != "vllm":
        _borrowed_share(judged, used, notes)
    elif wishes.vram_bytes:
        value = next((s.value for s in fit.settings if s.name == "gpu-memory-utilization"), str(default))
        notes.set("gpu-memory-utilization", value, f"{show_bytes(wishes.vram_bytes)} may be taken", "derived")
    elif share is not None and share != default:
        why = (
            f"{show_bytes(used)} belong to a display and others"
            if used
            else "CUDA graphs come on top of the budget"
        )
        notes.set(
            "gpu-memory-utilization",
            f"{share:g}",
            f"{why}; the default {default:g} would not start",
            "derived",
        )
    else:
        notes.set(
            "gpu-memory-utilization",
            f"{default:g}",
            "the release's default; nothing speaks against it",
            "table",
        )
    kv = f"{fit.kv_cache_tokens:,} tokens" if fit.kv_cache_tokens else "no KV cache"
    notes.write(
        "memory",
        constraint=f"{show_bytes(fit.budget_bytes)} of {show_bytes(fit.total_bytes)} a GPU"
        + (f", {show_bytes(used)} in use by others" if used else ""),
        formula="KV cache = budget - weights - activation peak - "
        "what is outside of PyTorch - graphs where counted",
        numbers=(
            f"{show_bytes(fit.budget_bytes)} - {show_bytes(fit.weights_bytes)} "
            f"- {show_bytes(fit.activation_bytes)}"
            f" - {show_bytes(fit.non_torch_bytes)} - {show_bytes(fit.cuda_graph_bytes)}"
            f" -> {show_bytes(fit.kv_cache_bytes)}"
        ),
        conclusion=f"{kv}; limit: {fit.binding}"
        + (f"; given up: {'; '.join(room.steps)}" if room.steps else ""),
        source="mopt fit" if judged.candidate.engine == "vllm" else "assumed: vLLM's accounting stands in",
    )


def _borrowed_share(judged: Judged, used: int, notes: Notes) -> None:
    """SGLang shares what is free between weights and KV cache, TensorRT-LLM what is left after loading."""
    fit = judged.room.fit
    if judged.candidate.engine != "sglang" or not used:
        return  # its own rule leaves room for activations, which vLLM's share does not
    share = math.floor(100 * (fit.weights_bytes + fit.kv_cache_bytes) / (fit.total_bytes - used)) / 100
    because = f"weights and KV cache in what {show_bytes(used)} of others leave, by vLLM's accounting"
    notes.set("gpu-memory-utilization", f"{share:g}", because, "assumed")


def _sequences(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    room, found = judged.room, judged.steady
    if question.wishes.max_num_seqs:
        notes.set("max-num-seqs", room.seqs, "as asked", "user")
        return
    if found is None:
        notes.set(
            "max-num-seqs", room.seqs, "speed is not known, so neither is how many run at once", "assumed"
        )
        return
    load, closed, unit = load_of(question)
    share = load / judged.replicas / judged.data
    mean, top = in_flight(found, share, closed=closed)
    shape = steady.shape_of(question.workload)
    seats = (
        int(held(room.fit, question.model) / shape.context)
        if room.fit.kv_cache_tokens and question.generates
        else None
    )
    if closed:
        unit = unit if load != 1 else unit.replace("clients", "client").replace("requests", "request")
        numbers = f"{load:g} {unit} / {judged.replicas * judged.data} = {show_count(share)} in flight"
        formula = "clients / replicas"
    else:
        numbers = (
            f"{share:.3g}/s x {found.e2e_ms / 1e3:.3g} s in the steady state = "
            f"{mean:.3g} in flight, {top:.3g} nearly never exceeded"
        )
        formula = (
            f"{decisions.rule('slots').value:g} x (rate x time in the system (Little) + "
            f"{decisions.rule('sigmas').value:g} roots of it (Poisson) + 1)"
        )
    if question.texts > 1:
        numbers += f", {question.texts} texts each"
    size = f"{shape.context:,.0f} tokens each"
    room_for = "" if seats is None else f"; the KV cache has room for {seats:,} of {size}"
    wanted = wanted_sequences(question, found, share, closed=closed)
    chosen = "in steps of 8; more slots would cost memory and slow every token"
    constraint = "no request waits for a slot, and none is thrown out of the KV cache"
    if room.seqs < wanted:
        constraint = "none is thrown out of the KV cache, which is too small for all that are in flight"
        chosen = f"not {wanted}: the KV cache has no seats for more, so that some requests wait"
    source: Source = "assumed" if {"load", "concurrency"} & set(question.assumed) else "derived"
    notes.set("max-num-seqs", room.seqs, f"{numbers}{room_for}", source)
    notes.write(
        "requests at once",
        constraint=constraint,
        formula=formula,
        numbers=f"{numbers}{room_for}",
        conclusion=f"--max-num-seqs {room.seqs}, {chosen}",
        source="derived",
    )


def _batch(question: PlanQuestion, judged: Judged, estimate: Estimate, notes: Notes) -> None:
    room, found = judged.room, judged.steady
    known = defaults(question, rules_version(judged.candidate)).batched
    if question.wishes.max_num_batched_tokens:
        notes.set("max-num-batched-tokens", room.batched, "as asked", "user")
        return
    shape = steady.shape_of(question.workload)
    limit = question.slo.tpot_ms
    if judged.steps is None or found is None or not shape.output:
        same = room.batched == known and judged.candidate.engine == "vllm"
        because = (
            "the release's default for this GPU" if same else "; ".join(room.steps) or "the load asks for it"
        )
        notes.set("max-num-batched-tokens", room.batched, because, "table" if same else "derived")
        return
    tail = tail_tpot(judged.steps, found, shape, room.batched)
    chunk = min(room.batched, shape.prompt_p99)
    one = judged.steps.mixed_ms(_chunk(found.running, shape.context, chunk))
    chunks = -(-shape.prompt_p99 // room.batched)
    step = (
        f"a prompt of {shape.prompt_p99:,} tokens takes {chunks} step{'s' * (chunks > 1)} of {show_ms(one)}"
    )
    played = estimate.tpot_ms.p99
    known_tail = tail if played is None else played
    numbers = f"{step}; with such steps in between, TPOT P99 is {show_ms(known_tail)}"
    roughly = "" if played is None else f"; by the formula {show_ms(tail)}, played through {show_ms(played)}"
    asked = f", {limit:g} ms is asked" if limit else ", no limit is asked"
    own = judged.candidate.engine == "vllm"
    same = room.batched == known and own
    because = f"{numbers}{asked}" if own else f"{numbers}{asked}; given, since its own default was not read"
    notes.set("max-num-batched-tokens", room.batched, because, "table" if same else "derived")
    notes.write(
        "tokens a step",
        constraint=f"TPOT P99 <= {limit:g} ms" if limit else "no limit on TPOT",
        formula="TPOT P99 = t(decode) + k99 / output x (t(decode + chunk) - t(decode)), k Poisson",
        numbers=f"{step}{roughly}" if roughly else numbers,
        conclusion=(
            f"{room.batched:,} tokens, the release's default for this GPU: left alone"
            if same
            else f"--max-num-batched-tokens {room.batched}: "
            + (
                "; ".join(room.steps)
                or (
                    f"smaller than the default {known:,}, so that decoding is not held up"
                    if room.batched < known
                    else "vLLM's default for this GPU, given openly"
                )
            )
        ),
        source=judged.steps.provenance,
    )


def _chunk(running: float, context: float, tokens: int) -> Batch:
    return Batch(sequences=running, context=context, tokens=tokens, chunks=1, pairs=tokens * tokens / 2)


def _parallel(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    candidate, wishes, gpu = judged.candidate, question.wishes, question.gpu
    if candidate.tensor > 1:
        because = (
            "as asked" if wishes.tensor_parallel else f"weights and KV cache over {candidate.tensor} GPUs"
        )
        notes.set("tensor-parallel-size", candidate.tensor, because, by(bool(wishes.tensor_parallel)))
    if candidate.stages > 1:
        because = "as asked" if wishes.pipeline_parallel else "layers in stages: little traffic between GPUs"
        notes.set("pipeline-parallel-size", candidate.stages, because, by(bool(wishes.pipeline_parallel)))
    if candidate.ranks > 1:
        because = "the latent KV cache would be the same on every GPU of tensor parallelism; side by side, "
        notes.set("data-parallel-size", judged.data, f"{because}each keeps its own requests'", "derived")
        notes.set("enable-expert-parallel", 1, f"{candidate.ranks} engines share the experts", "derived")
    elif judged.data > 1:
        notes.set("data-parallel-size", judged.data, "as asked", "user")
    if candidate.experts and candidate.ranks == 1:
        assert question.model.experts is not None
        width = question.model.experts.intermediate_size
        why = f"experts of width {width:,} / {candidate.tensor} are no multiple of their blocks of 128"
        notes.set("enable-expert-parallel", 1, f"{why}: each GPU holds whole experts", "derived")
    if candidate.whole == 1:
        return
    link = (
        f"NVLink, {gpu.nvlink_bytes_per_s / 1e9:g} GB/s both ways"
        if gpu.nvlink_bytes_per_s
        else _pcie(gpu.pcie)
    )
    notes.write(
        "parallelism",
        constraint=f"{candidate.parallel} over {link}",
        formula="all-reduces a step = 2 x layers; each moves tokens x hidden x 2 B"
        if candidate.ranks == 1
        else "one exchange a layer of experts; each GPU gets the tokens of all others x hidden x 2 B "
        "and sends as much back",
        numbers=_network(question, judged) + _routed(question, judged),
        conclusion=f"{candidate.parallel}: the fewest GPUs whose memory and speed hold the limits",
        source=judged.steps.provenance if judged.steps else "assumed",
    )


def _pcie(word: str | None) -> str:
    return f"PCIe {word}, no NVLink" if word else "PCIe, no NVLink"


def _routed(question: PlanQuestion, judged: Judged) -> str:
    """What tokens that go to their experts alone would move, beside what is moved by default."""
    experts, ranks = question.model.experts, judged.candidate.ranks
    if experts is None or ranks < 2:
        return ""
    hidden = question.model.hidden_size
    all_of_them = links.gathered(hidden, ranks).bytes
    chosen = links.routed(hidden, ranks, experts.active).bytes
    return (
        f"; {all_of_them / 1e3:,.0f} kB a token and layer by all-gather and reduce-scatter, the default; "
        f"{chosen / 1e3:,.0f} kB where each token goes to its {experts.active} experts alone "
        "(--all2all-backend, needs DeepEP)"
    )


def _network(question: PlanQuestion, judged: Judged) -> str:
    """What the all-reduce costs in a mean step."""
    if judged.steps is None or judged.steady is None:
        return "its time is not known"
    shape = steady.shape_of(question.workload)
    batch = Batch(sequences=max(1.0, judged.steady.running), context=shape.context)
    step = judged.steps.explain(batch)
    cost = step.parts.get("network", 0.0)
    return (
        f"{cost:.3g} of {step.ms:.3g} ms of a decode step with "
        f"{batch.sequences:.3g} sequences are communication"
    )


def _cache(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    wishes, room = question.wishes, judged.room
    version = rules_version(judged.candidate)
    if wishes.kv_cache_dtype:
        notes.set("kv-cache-dtype", wishes.kv_cache_dtype, "as asked", "user")
    elif room.kv_dtype != "auto":
        notes.set(
            "kv-cache-dtype", room.kv_dtype, "in 16 bits the cache holds too few requests or none", "derived"
        )
    if wishes.block_size:
        notes.set("block-size", wishes.block_size, "as asked", "user")
    elif judged.candidate.engine == "vllm":
        block = vllm.release(version).defaults.block_size
        notes.set("block-size", block, "left alone: it does not change how much memory is taken", "table")
    if question.generates and judged.candidate.engine == "vllm":
        known = vllm.release(version).defaults
        prefix = question.workload.shared_prefix
        why = (
            f"; {prefix} tokens are shared by all prompts"
            if prefix
            else "; it costs nothing where nothing repeats"
        )
        if known.prefix_caching:
            notes.set("enable-prefix-caching", "1", f"on by default{why}", "table")
        if known.chunked_prefill:
            notes.set(
                "enable-chunked-prefill", "1", "on by default: prompts share steps with decoding", "table"
            )


def _llama(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    room = judged.room
    slots = room.seqs
    asked: Source = "user" if question.wishes.max_model_len else "derived"
    notes.set(
        "ctx-size", room.length * slots, f"{slots} slot{'s' * (slots > 1)} x {room.length:,} tokens", asked
    )
    notes.set("parallel", slots, "requests that run at once share the context", "derived")
    if room.gpu_layers is not None:
        notes.set("n-gpu-layers", room.gpu_layers, room.steps[0], "derived")
    else:
        notes.set("n-gpu-layers", question.model.layers + 1, "all layers and the output head fit", "derived")
    if sees_images(question) and question.gguf is None:
        because = "the encoder of images is a file of its own"
        notes.set("mmproj", projector_of(question), because, "derived")
    if question.wishes.kv_cache_dtype:
        notes.set("cache-type-k", question.wishes.kv_cache_dtype, "as asked", "user")
        notes.set("cache-type-v", question.wishes.kv_cache_dtype, "as asked", "user")
    fit = room.fit
    notes.write(
        "memory",
        constraint=f"{show_bytes(fit.budget_bytes)} of the GPU",
        formula="layers on the GPU + their KV cache + compute buffer + CUDA context",
        numbers=" + ".join(f"{t.name} {show_bytes(t.bytes)}" for t in fit.terms),
        conclusion=room.steps[0] if room.steps else "everything fits on the GPU",
        source="mopt fit",
    )
