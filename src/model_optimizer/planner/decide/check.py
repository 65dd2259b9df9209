"""Contradictions and impossible numbers, before anything is worked out."""

import math
from dataclasses import replace

from model_optimizer.core import UsageError
from model_optimizer.facts import recipes
from model_optimizer.planner.memory.cache import ELEMENT_BYTES
from model_optimizer.planner.memory.limits import length_limit
from model_optimizer.planner.memory.llama_cpp import CACHE_TYPES

from .candidates import own_scheme
from .place import length_wanted
from .question import Functions, PlanQuestion


def checked(question: PlanQuestion, functions: Functions) -> PlanQuestion:
    """The same question, its context stretched where the family allows it. UsageError for contradictions."""
    _engine(question, functions)
    _scheme(question, functions)
    _parallel(question)
    _numbers(question)
    return _length(_offloading(_drafting(question)))


def _offloading(question: PlanQuestion) -> PlanQuestion:
    """KV cache in host memory is vLLM's here, and takes what the host has."""
    wishes, there = question.wishes, question.host_memory_bytes
    if not wishes.kv_offload_bytes:
        return question
    if wishes.engine not in (None, "vllm"):
        raise UsageError(
            f"--kv-offload is planned for vllm, not for {wishes.engine}", hint=("leave --engine out",)
        )
    if there is not None and wishes.kv_offload_bytes > there:
        raise UsageError(
            "--kv-offload is more than the memory of the host that is available",
            cause=(f"{there / 2**30:.1f} GiB are",),
        )
    return replace(question, wishes=replace(wishes, engine="vllm"))


def _drafting(question: PlanQuestion) -> PlanQuestion:
    """Drafts are vLLM's here; what cannot be drafted is refused."""
    asked, model, wishes = question.wishes.speculation, question.model, question.wishes
    if asked is None:
        return question
    if not question.generates:
        raise UsageError(f"`{model.name}` generates nothing that could be drafted")
    if wishes.engine not in (None, "vllm"):
        raise UsageError(
            f"--speculative is planned for vllm, not for {wishes.engine}", hint=("leave --engine out",)
        )
    if asked.method == "mtp" and not model.mtp_parameters:
        raise UsageError(
            f"`{model.name}` has no layers that predict further tokens",
            hint=("take ngram, draft or eagle3",),
        )
    return replace(question, wishes=replace(wishes, engine="vllm"))


def _engine(question: PlanQuestion, functions: Functions) -> None:
    name = question.wishes.engine
    if name is not None and name not in functions.engines:
        known = ", ".join(functions.engines)
        raise UsageError(f"there is no engine `{name}` that runs on a GPU", hint=(f"known: {known}",))


def _scheme(question: PlanQuestion, functions: Functions) -> None:
    name, model = question.wishes.scheme, question.model
    if name is None:
        return
    if name not in functions.schemes:
        known = ", ".join(functions.schemes)
        raise UsageError(f"there is no scheme `{name}`", hint=(f"known: {known}",))
    own = own_scheme(model)
    if model.quantization and own != name:
        raise UsageError(
            f"`{model.name}` is stored in `{own or model.quantization.method}` "
            f"and cannot be served in `{name}`",
            cause=("what was rounded away when it was quantized does not come back",),
            hint=("plan for the model that it was made from", f"or leave `--scheme {name}` out"),
        )
    dtype = question.wishes.dtype
    if dtype and name in ("bf16", "fp16", "fp32") and dtype != name:
        raise UsageError(
            f"--dtype {dtype} and --scheme {name} contradict each other", hint=("give one of them",)
        )


def _parallel(question: PlanQuestion) -> None:
    wishes, heads = question.wishes, question.model.heads
    tensor = wishes.tensor_parallel or 1
    if heads % tensor:
        possible = ", ".join(str(n) for n in (1, 2, 4, 8, 16) if heads % n == 0)
        raise UsageError(
            f"--tp {tensor} does not divide the {heads} attention heads of `{question.model.name}`",
            hint=(f"possible: {possible}",),
        )
    stages = wishes.pipeline_parallel or 1
    if stages > question.model.layers:
        raise UsageError(f"--pp {stages} is more than the {question.model.layers} layers of the model")
    taken = tensor * stages * (wishes.data_parallel or 1)
    if taken > question.gpus:
        raise UsageError(
            f"--tp, --pp and --dp take {taken} GPUs, there are {question.gpus}",
            hint=(f"pass --gpus {taken}",),
        )


def _numbers(question: PlanQuestion) -> None:
    wishes, slo, work = question.wishes, question.slo, question.workload
    tokens, seqs = wishes.max_num_batched_tokens, wishes.max_num_seqs
    if tokens and seqs and tokens < seqs:
        raise UsageError(
            f"--max-num-batched-tokens {tokens} is less than --max-num-seqs {seqs}",
            cause=("every sequence takes at least one token of a step",),
        )
    if slo.e2e_ms is not None and slo.ttft_ms is not None and slo.e2e_ms < slo.ttft_ms:
        raise UsageError(
            f"--e2e-ms {slo.e2e_ms:g} is less than --ttft-ms {slo.ttft_ms:g}",
            cause=("a whole answer takes longer than its first token",),
            hint=("leave one of them out",),
        )
    if not question.generates and (slo.tpot_ms is not None or slo.ttft_ms is not None):
        raise UsageError(
            f"`{question.model.name}` generates no tokens: --ttft-ms and --tpot-ms do not apply to it",
            hint=("give --e2e-ms",),
        )
    if work.qps is not None and math.isinf(work.qps) and not work.requests:
        raise UsageError("--qps inf needs --requests", hint=("say how many requests the burst has",))
    if question.generates and question.texts > 1:
        raise UsageError(
            f"`{question.model.name}` answers one prompt a request: --texts does not apply to it",
            hint=("give the rate of requests with --qps",),
        )
    _memory(question)


def _memory(question: PlanQuestion) -> None:
    wishes, card = question.wishes, question.card
    have = f"it has {card.total_bytes / 2**30:.2f} GiB"
    if wishes.vram_bytes and wishes.vram_bytes > card.total_bytes:
        raise UsageError(f"--vram is more than the memory of {card.name}", cause=(have,))
    if card.used_bytes >= card.total_bytes:
        raise UsageError(
            f"nothing of {card.name} is left: {card.used_bytes / 2**30:.2f} GiB are in use or reserved",
            cause=(have,),
            hint=("free it, or pass what others hold with --reserve",),
        )
    known = {name for names in (ELEMENT_BYTES, CACHE_TYPES) for name in names}
    if wishes.kv_cache_dtype is not None and wishes.kv_cache_dtype not in known:
        raise UsageError(
            f"there is no KV cache format `{wishes.kv_cache_dtype}`",
            hint=(
                f"vLLM: {', '.join(sorted(ELEMENT_BYTES))}",
                f"llama.cpp: {', '.join(sorted(CACHE_TYPES))}",
            ),
        )


def _length(question: PlanQuestion) -> PlanQuestion:
    model, wishes = question.model, question.wishes
    limit = length_limit(model)
    work = question.workload
    needed = work.prompt_tokens.quantile(0.99) + (
        work.output_tokens.quantile(0.99) if question.generates else 0
    )
    asked = wishes.max_model_len
    if asked is not None and asked < needed:
        raise UsageError(
            f"--max-model-len {asked} is less than the requests of the load, {needed} tokens",
            hint=(f"pass --max-model-len {needed} or more, or shorter requests",),
        )
    if limit is None or max(asked or 0, needed) <= limit:
        return question
    recipe = recipes.find(model.model_type, model.name)
    wanted = asked or length_wanted(replace(question, model=replace(model, max_position=None)))
    if recipe and recipe.longest and recipe.yarn_original and wanted <= recipe.longest:
        factor = math.ceil(wanted / recipe.yarn_original * 100) / 100
        scaling = {
            "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": recipe.yarn_original,
        }  # fmt: skip
        config = {**(model.config or {}), "rope_scaling": scaling}
        return replace(question, model=replace(model, max_position=wanted, config=config), stretched=factor)
    what = f"--max-model-len {asked}" if asked else f"requests of {needed} tokens"
    raise UsageError(
        f"{what}: above the limit of `{model.name}`, {limit} tokens",
        cause=("the engine refuses lengths beyond the positions that the model was trained for",),
        hint=(f"stay at {limit} tokens or less",),
        reference="model-length",
    )
