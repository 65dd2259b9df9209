"""What a plan adds to a server that would start without it: graphs, host memory, drafts, the recipe."""

import json

from model_optimizer.core import Setting, UsageError
from model_optimizer.core.question import SpeculationAsked
from model_optimizer.core.steps import StepModel
from model_optimizer.core.units import show_bytes
from model_optimizer.facts import decisions, memory, recipes
from model_optimizer.facts.versions import key
from model_optimizer.planner.memory.graphs import capture_sizes
from model_optimizer.planner.speed import speculative
from model_optimizer.planner.speed.images import WithImages

from . import steady
from .judge import Judged
from .notes import Notes, by
from .question import PlanQuestion

GIB = 2**30
LARGEST_GRAPH_FROM = "0.11.2"
"""From here on the largest captured batch is an option of its own; before it was a list of sizes."""
LOOKUP = 4
NGRAM = SpeculationAsked(method="ngram", tokens=4)
"""What is priced when nobody asked for speculation: it needs no second model."""


def add(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    """Settings of one replica beyond length, batch, memory and parallelism, each with its page."""
    for part in (_graphs, _offload, _speculation, _recipe):
        part(question, judged, notes)


def _graphs(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    room, fit = judged.room, judged.room.fit
    if room.eager:
        why = "as asked" if question.wishes.enforce_eager else "memory leaves no room for CUDA graphs"
        notes.set("enforce-eager", 1, f"{why}; {price_of_eager(judged)}", by(question.wishes.enforce_eager))
        return
    if not question.generates:
        return
    sizes = ()
    if judged.candidate.engine == "vllm":
        version = judged.candidate.offer.version
        sizes = capture_sizes(room.seqs, room.batched, step=memory.vllm(version).capture_step)
    if sizes:
        late = key(judged.candidate.offer.version) >= key(LARGEST_GRAPH_FROM)
        name = "max-cudagraph-capture-size" if late else "cuda-graph-sizes"
        because = (
            f"the default: twice max-num-seqs, at most 512; {len(sizes)} sizes, "
            f"{show_bytes(fit.cuda_graph_bytes)}"
        )
        notes.set(name, sizes[-1], because, "table")
    running = judged.steady.running if judged.steady else 0.0
    covered = f"; {running:.3g} sequences run in the mean" if running else ""
    notes.write(
        "CUDA graphs",
        constraint=f"they take {show_bytes(fit.cuda_graph_bytes)}"
        + (", subtracted from the KV cache" if fit.cuda_graphs_counted else ", on top of the budget"),
        formula="sizes 1, 2, 4, then every 8th up to min(2 x max-num-seqs, 512)" if sizes else "",
        numbers=(f"{len(sizes)} sizes up to {sizes[-1]}{covered}; " if sizes else "")
        + price_of_eager(judged),
        conclusion="left on: eager mode is for when memory forces it, and it does not here",
        source="vLLM's rule for capture sizes; memory fitted in evidence/memory-model"
        if sizes
        else "assumed",
    )


def price_of_eager(judged: Judged) -> str:
    """What the host would have to do in each step without graphs."""
    plain = "without them the host launches every kernel"
    found = judged.steady
    if judged.steps is None or found is None or not found.running:
        return plain
    steps = _bare(judged.steps)
    host, layers = getattr(steps, "host", None), getattr(steps, "layers", None)
    if host is None or layers is None:
        return plain
    least = layers * host.eager_layer_us / 1e3
    return (
        f"without them the host needs {least:.3g} ms a step for "
        f"{layers} layers, a step takes {found.step_ms:.3g} ms"
    )


def _bare(steps: StepModel) -> StepModel:
    """The model of time under corrections and speculation."""
    while (inner := getattr(steps, "inner", None)) is not None:
        steps = inner
    return steps


def _offload(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    """Host memory keeps what the KV cache threw out; running requests need the GPU's own."""
    if not question.generates or judged.candidate.engine != "vllm":
        return
    asked, fit = question.wishes.kv_offload_bytes, judged.room.fit
    shared = question.workload.shared_prefix
    each = fit.kv_bytes_per_token * judged.candidate.tensor
    if asked:
        tokens = asked // each if each else 0
        because = f"as asked: {tokens:,} tokens of prefixes that the GPU has no room for"
        notes.set("kv-offloading-size", f"{asked / GIB:g}", because, "user")
    running = judged.steady.running if judged.steady else 0.0
    needed = running * steady.shape_of(question.workload).context + shared
    spare = max(0, fit.kv_cache_tokens - round(needed))
    conclusion = f"{show_bytes(asked)} of host memory, as asked" if asked else "left off"
    if not asked:
        conclusion += (
            f": the shared prefix of {shared:,} tokens stays in the GPU's own cache"
            if shared and spare
            else ": nothing is known to repeat, so nothing would be read back"
            if not shared
            else ": it would not make room for running requests; `--kv-offload 32GiB` keeps prefixes there"
        )
    notes.write(
        "KV cache in host memory",
        constraint="it serves prefixes that come back; a running request's cache must be on the GPU",
        formula="tokens left for prefixes = KV cache - running x context - shared prefix",
        numbers=f"{fit.kv_cache_tokens:,} - {running:.3g} x "
        f"{steady.shape_of(question.workload).context:.0f} - {shared:,} = {spare:,}",
        conclusion=conclusion,
        source="vllm config/cache.py, kv_offloading_size",
    )


def _speculation(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    """Drafting as asked, else what it would take for it to pay."""
    found, steps = judged.steady, judged.steps
    if not question.generates or judged.candidate.engine != "vllm" or steps is None or found is None:
        return
    asked = question.wishes.speculation
    if asked is not None:
        notes.settings.append(speculative_setting(question, judged, asked))
    context = steady.shape_of(question.workload).context
    running = max(1.0, found.running)
    language = steps.inner if isinstance(steps, WithImages) else steps
    drafting = language if isinstance(language, speculative.Speculative) else _priced(language)
    least, most = drafting.break_even_acceptance(running, context), drafting.break_even_batch(context)
    method, tokens = drafting.speculation.method, drafting.speculation.tokens
    pays = (
        f"at {running:.3g} sequences it pays from an acceptance of {least:.0%} a token on"
        if least is not None
        else f"at {running:.3g} sequences it does not pay, whatever the acceptance"
    )
    bound = f"; at {drafting.speculation.acceptance:.0%} up to {most} sequences" if most else ""
    gain = drafting.gain(running, context)
    notes.write(
        "speculative decoding",
        constraint="checking drafted tokens is nearly free while a step waits for memory",
        formula="tokens a step = (1 - a^(k+1)) / (1 - a); it pays while that is more than the step is longer",
        numbers=f"{method}, {tokens} tokens: {pays}{bound}",
        conclusion=f"as asked: {gain:.2f} times plain decoding here"
        if asked
        else "left off: the acceptance of your texts is not known; measure it, then pass --speculative",
        source="arXiv 2211.17192; step times as above",
    )


def _priced(steps: StepModel) -> speculative.Speculative:
    plain = speculative.Speculation(
        method="ngram", tokens=NGRAM.tokens, acceptance=speculative.ASSUMED["ngram"], assumed=True
    )
    return speculative.speculative(steps, plain, speculative.ngram_draft(plain))


def speculative_setting(question: PlanQuestion, judged: Judged, asked: SpeculationAsked) -> Setting:
    """vLLM's `--speculative-config`. UsageError when the release does not take the method."""
    version = judged.candidate.offer.version
    fact = decisions.speculation(asked.method)
    if key(version) < key(fact.since):
        raise UsageError(
            f"vLLM {version} does not draft with `{asked.method}`",
            cause=(f"it came with {fact.since}",),
            hint=("take another release, or --speculative ngram:4",),
        )
    told: dict[str, object] = {"method": fact.word, "num_speculative_tokens": asked.tokens}
    if asked.method == "ngram":
        told["prompt_lookup_max"] = LOOKUP
    if question.wishes.draft_model:
        told["model"] = question.wishes.draft_model
    assumed = "" if asked.acceptance is not None else "; its acceptance is assumed"
    return Setting(
        name="speculative-config", value=json.dumps(told), because=f"as asked{assumed}", source="user"
    )


def _recipe(question: PlanQuestion, judged: Judged, notes: Notes) -> None:
    """What the family wants: pooling, parsers. Remote code is never trusted."""
    engine, model = judged.candidate.engine, question.model
    if engine not in ("vllm", "sglang"):
        return
    version = judged.candidate.offer.version
    said: list[str] = []
    if not question.generates:
        pooled = f"; {model.pooling} pooling, as the checkpoint says" if model.pooling else ""
        if engine == "vllm":
            name, value = ("runner", "pooling") if key(version) >= key("0.10.2") else ("task", "embed")
            notes.set(name, value, f"vectors instead of text{pooled}", "derived")
            said.append(f"--{name} {value}{pooled}")
        else:
            said.append(f"--is-embedding{pooled}")
    elif recipe := recipes.find(model.model_type, model.name):
        said += _parsers(question, engine, version, recipe, notes)
    if question.generates:
        said.append("the chat template is the checkpoint's own")
    code = "its repository brings code, which is not run: the engine's own classes serve it"
    said.append(code if model.remote_code else "no code of the repository is needed or trusted")
    notes.write(
        "model recipe",
        constraint=f"{model.architecture} ({model.model_type}), task {model.task}",
        formula="",
        numbers="",
        conclusion="; ".join(said),
        source="facts/recipes, config.json",
    )


def _parsers(
    question: PlanQuestion, engine: str, version: str, recipe: recipes.Recipe, notes: Notes
) -> list[str]:
    """The settings of a family that generates, and a word on each."""
    said: list[str] = []
    thinks, calls, since = recipe.reasoning_parser, recipe.tool_call_parser, recipe.reasoning_since
    if engine == "sglang":
        thinks, calls, since = recipe.sglang_reasoning_parser, recipe.sglang_tool_call_parser, None
    if thinks and (since is None or key(version) >= key(since)):
        notes.set("reasoning-parser", thinks, "the model thinks aloud: its thoughts apart", "derived")
        said.append(f"reasoning parser {thinks}")
    if question.wishes.tools and calls:
        if engine == "vllm":
            notes.set("enable-auto-tool-choice", 1, "tools were asked for", "user")
        notes.set("tool-call-parser", calls, "as this family writes its calls", "derived")
        said.append(f"tool calls as {calls} writes them")
    elif calls:
        said.append(f"--tools would add the parser {calls}")
    return said
