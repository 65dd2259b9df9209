"""A judged candidate as the noun that everything later reads."""

import json
from dataclasses import replace

from model_optimizer.core import Derivation, Estimate, Plan, Setting
from model_optimizer.core.units import show_bytes, show_count, show_ms
from model_optimizer.facts.decisions import Branch
from model_optimizer.facts.versions import key

from .candidates import loads_as_it_is, projector_of, sees_images, stem_of
from .cost import cost
from .derive import derive
from .judge import Judged, load_of
from .question import Functions, PlanQuestion

GGUF = {"bf16": "BF16", "fp16": "F16", "int8_weight": "Q8_0", "int4_rtn": "Q4_K_M"}
DIRECT = frozenset({"BF16", "F16", "Q8_0"})
"""What convert_hf_to_gguf.py of llama.cpp writes itself (--outtype)."""
FORMATS = {"llama_cpp": "gguf", "tensorrt": "onnx", "tensorrt_rtx": "onnx"}
ROPE_SCALING_UNTIL = "0.11.0"
NO_RELEASES = "0"


def write(
    question: PlanQuestion, functions: Functions, judged: Judged, estimate: Estimate, branch: Branch
) -> Plan:
    """The plan with its settings, its chain, its page of reasons and its command."""
    candidate, offer = judged.candidate, judged.candidate.offer
    derived = derive(question, judged, estimate)
    settings = (*derived.settings, *_stretched(question, judged))
    if not offer.exact:
        settings = tuple(_assumed(s, offer.version) for s in settings)
    checkpoint, prepare = checkpoint_of(question, judged)
    rate = estimate.requests_per_s
    plan = Plan(
        model=question.model.name,
        checkpoint=checkpoint,
        gpu=question.site.gpu,
        gpus=judged.gpus,
        host_digest=question.host_digest,
        workload=question.workload,
        slo=question.slo,
        engine=candidate.engine,
        engine_version=offer.version if offer.version != NO_RELEASES else None,
        image=offer.image,
        environment=functions.engines[candidate.engine].ENVIRONMENT,
        scheme=candidate.scheme.name,
        format=FORMATS.get(candidate.engine, "safetensors"),
        tensor_parallel=candidate.tensor,
        pipeline_parallel=candidate.stages,
        data_parallel=judged.data,
        expert_parallel=candidate.tensor * candidate.ranks if candidate.experts else 1,
        replicas=judged.replicas + judged.spares,
        settings=settings,
        estimate=estimate,
        env={**offer.env, **question.wishes.env},
        prepare=prepare,
        links=offer.links,
        branch=branch.path,
        derivations=(*_chain(judged), *derived.derivations, *_replicas(question, judged, estimate)),
        cost=cost(question.prices, question.gpu.name, judged.gpus, question.workload, rate),
        notes=(
            *_weight_only(question, judged),
            *judged.notes,
            *judged.room.notes,
            *offer.notes,
            *_notes(question),
        ),
    )
    return replace(plan, command=functions.engines[candidate.engine].command(plan, 8000))


def checkpoint_of(question: PlanQuestion, judged: Judged) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """What the engine loads, and the commands that make it when it is not there yet."""
    candidate, source = judged.candidate, question.checkpoint
    scheme = candidate.scheme.name
    stem = stem_of(question)
    if candidate.engine == "llama_cpp":
        return _gguf(question, scheme)
    if candidate.engine in ("tensorrt", "tensorrt_rtx"):
        folder = f"./{stem}-onnx"
        # The network decides what the engine computes in, so it is made in that format first.
        made = ("--to", "onnx_typed", "--scheme", scheme, "--out", folder)
        return folder, (("mopt", "convert", source, *made),)
    if loads_as_it_is(question.model, candidate.scheme):
        return source, ()
    folder = f"./{stem}-{scheme.replace('_', '-')}"
    return folder, (("mopt", "quantize", source, "--scheme", scheme, "--out", folder),)


def _gguf(question: PlanQuestion, scheme: str) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The file for llama.cpp; what is fewer bits than its converter writes is made of 16."""
    source, stem, kind = question.checkpoint, stem_of(question), GGUF[scheme]
    if question.gguf is not None:
        return source, ()
    steps = list[tuple[str, ...]]()
    if question.model.path is None:
        # The converter reads folders.
        folder = f"./{stem}"
        steps.append(("hf", "download", source, "--local-dir", folder))
        source = folder
    name = f"./{stem}-{kind}.gguf"
    plain = name if kind in DIRECT else f"./{stem}-F16.gguf"
    number = kind.lower() if kind in DIRECT else "f16"
    convert = ("python3", "convert_hf_to_gguf.py", source)
    steps.append((*convert, "--outtype", number, "--outfile", plain))
    if kind not in DIRECT:
        steps.append(("llama-quantize", plain, name, kind))
    if sees_images(question):
        steps.append((*convert, "--mmproj", "--outtype", "f16", "--outfile", projector_of(question)))
    return name, tuple(steps)


def _stretched(question: PlanQuestion, judged: Judged) -> tuple[Setting, ...]:
    """YaRN, for contexts beyond what the model was trained for."""
    if question.stretched is None or judged.candidate.engine != "vllm":
        return ()
    scaling = (question.model.config or {}).get("rope_scaling")
    old = key(judged.candidate.offer.version) <= key(ROPE_SCALING_UNTIL)
    name = "rope-scaling" if old else "hf-overrides"
    value = scaling if old else {"rope_parameters": scaling}
    because = (
        f"YaRN by {question.stretched:g}: the context is longer "
        "than the model was trained for; short texts lose a little"
    )
    return (Setting(name=name, value=json.dumps(value), because=because, source="derived"),)


def _assumed(setting: Setting, version: str) -> Setting:
    if setting.source not in ("derived", "table"):
        return setting
    because = f"{setting.because} (release {version} is not in the facts: rules of its neighbour)"
    return replace(setting, because=because, source="assumed" if setting.source == "derived" else "table")


def _chain(judged: Judged) -> tuple[Derivation, ...]:
    offer = judged.candidate.offer
    unsure = [link.name for link in offer.links if link.holds is None]
    cuda = f" with CUDA {offer.cuda}" if offer.cuda else ""
    end = f"; not known: {', '.join(unsure)}" if unsure else ""
    return (
        Derivation(
            title="release and image",
            constraint="model -> release -> image and CUDA -> driver -> compute capability -> number format",
            numbers="; ".join(link.says for link in offer.links),
            conclusion=f"{judged.candidate.engine} {offer.version}: {offer.image or 'no image'}{cuda}{end}",
            source=", ".join(dict.fromkeys(link.source for link in offer.links)),
        ),
    )


def _replicas(question: PlanQuestion, judged: Judged, estimate: Estimate) -> tuple[Derivation, ...]:
    if judged.capacity is None or judged.steady is None:
        return ()
    load, closed, unit = load_of(question)
    spare = f" + {judged.spares} spare, for when one dies" if judged.spares else ""
    if judged.spares and question.wishes.spares is None:
        spare += " (its GPUs were left: no cost in the choice)"
    formula = "clients / capacity" if closed else "load / (capacity x (1 - headroom)), rounded up"
    free = f", {judged.headroom:.0%} of it left free" if judged.headroom is not None else ""
    times = ", ".join(
        f"{name} P99 {show_ms(spread.p99)}"
        for name, spread in (("TTFT", estimate.ttft_ms), ("TPOT", estimate.tpot_ms), ("E2E", estimate.e2e_ms))
        if spread.p99 is not None
    )
    return (
        Derivation(
            title="replicas",
            constraint=_asked(question),
            formula=formula,
            numbers=(
                f"one takes {show_count(judged.capacity)} {unit} within the limits; {load:g} are asked{free}"
            ),
            conclusion=f"{judged.replicas} replica{'s' * (judged.replicas > 1)}{spare} on {judged.gpus} "
            f"GPU{'s' * (judged.gpus > 1)}; {times or 'no latency is predicted'}",
            source=estimate.provenance,
        ),
    )


def _asked(question: PlanQuestion) -> str:
    slo = question.slo
    limits = [
        f"{name} P{slo.percentile:g} <= {value:g} ms"
        for name, value in (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("E2E", slo.e2e_ms))
        if value is not None
    ]
    load, _, unit = load_of(question)
    return f"{load:g} {unit}" + (f"; {', '.join(limits)}" if limits else "; no limit on latency")


def _weight_only(question: PlanQuestion, judged: Judged) -> tuple[str, ...]:
    """Said where a format saves memory here and no computing, though elsewhere it does both."""
    scheme, ability = judged.candidate.scheme, judged.candidate.ability
    if ability.how != "weight-only" or scheme.activation_bits >= 16:
        return ()
    return (f"{scheme.name} is weight-only on {question.site.gpu}: {ability.because}",)


def _notes(question: PlanQuestion) -> tuple[str, ...]:
    notes = [f"{name.replace('_', ' ')}: {why}" for name, why in question.assumed.items()]
    if question.card.used_bytes and "reserve" not in question.assumed:
        notes.append(f"{show_bytes(question.card.used_bytes)} of each GPU are taken as in use by others")
    if question.texts > 1:
        notes.append(
            f"{question.texts} texts a request: E2E is of one text, the request waits for the slower one"
        )
    if not question.generates:
        notes.append(
            "HTTP and tokenizing are counted as time a request takes, not as a limit of the CPU: measure it"
        )
    return tuple(notes)
