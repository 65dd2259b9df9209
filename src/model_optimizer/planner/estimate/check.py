"""Refuses questions that contradict themselves or the model."""

from model_optimizer.core import FitQuestion, Lengths, UsageError
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.planner.memory.limits import length_limit

# Lengths beyond this share of requests are cut by the engine and not worth refusing a question for.
LONGEST = 0.999
# A replica computes a few thousand sequences at once; beyond this all the rest only waits.
MOST_AT_ONCE = 20_000


def check_workload(question: EstimateQuestion) -> None:
    work, placed = question.workload, question.placed
    if work.qps is not None and work.concurrency is not None:
        raise UsageError("--qps and --concurrency exclude each other", hint=("give one of them",))
    each = -(-(work.concurrency or 1) // placed.data_parallel)
    if each > MOST_AT_ONCE:
        raise UsageError(
            f"--concurrency {work.concurrency:,} is {each:,} requests at once on each replica",
            cause=(
                f"no engine computes more than some thousands together; looked at: up to {MOST_AT_ONCE:,}",
            ),
            hint=("add replicas with --dp, or ask for fewer",),
        )
    if question.expert_parallel and placed.model.experts is None and placed.gguf is None:
        raise UsageError(f"`{placed.model.name}` has no experts", hint=("leave --expert-parallel out",))
    if placed.gpu_layers is not None and placed.engine != "llama.cpp":
        raise UsageError("--gpu-layers belongs to --engine llama.cpp")
    if not 0 <= question.prefix_hit < 1:
        raise UsageError(
            f"--prefix-hit is a share from 0 to below 1, not {question.prefix_hit:g}",
            hint=("at least the last token of a prompt is always computed",),
        )
    if work.shared_prefix >= longest(work.prompt_tokens) and work.shared_prefix:
        raise UsageError(
            f"--shared-prefix {work.shared_prefix} is not shorter than the prompts",
            hint=("prompts hold the shared prefix and what follows it",),
        )
    limit = _most(placed)
    wanted = longest(work.prompt_tokens)
    if placed.model.task == "generate":
        wanted += longest(work.output_tokens)
    if limit is not None and wanted > limit:
        what = "--max-model-len" if placed.max_model_len else f"the limit of `{placed.model.name}`"
        raise UsageError(
            f"requests of up to {wanted:,} tokens are longer than {what}, {limit:,}",
            cause=("the engine refuses a request whose prompt and answer together are longer",),
            hint=("shorten --prompt-tokens or --output-tokens",),
            reference="model-length",
        )


def longest(lengths: Lengths) -> int:
    if lengths.kind == "empirical":
        return round(max(lengths.numbers))
    return lengths.quantile(LONGEST) if lengths.kind != "fixed" else round(lengths.numbers[0])


def _most(placed: FitQuestion) -> int | None:
    return placed.max_model_len or length_limit(placed.model)
