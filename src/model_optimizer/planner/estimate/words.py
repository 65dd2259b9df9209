"""What the numbers hold for, and what a reader must know to use them."""

from model_optimizer.core import Fit, Setting
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.facts import speed
from model_optimizer.planner.images import Images
from model_optimizer.planner.service import Limits
from model_optimizer.planner.speed import Setup


def image_notes(images: Images) -> tuple[str, ...]:
    """What prompts hold beside their text."""
    if not images.count:
        return ()
    width, height = images.pixels
    each = f"{images.count} of {width} x {height} pixels in each prompt, {images.tokens or 0:,} tokens each"
    return (f"images: {each}, beside the tokens of text", f"image encoder: {images.said()}")


def settings_of(question: EstimateQuestion, setup: Setup, fitted: Fit, limits: Limits) -> tuple[Setting, ...]:
    placed, work = question.placed, question.workload
    own = "asked for" if placed.scheme or placed.dtype else "that of the checkpoint"
    found = [
        Setting(
            name="engine",
            value=f"{placed.engine} {setup.version or ''}".strip(),
            because="asked for" if placed.version == setup.version else "the nearest release in the facts",
            source="user" if placed.version == setup.version else "table",
        ),
        Setting(
            name="scheme", value=setup.scheme.name, because=own, source="user" if placed.scheme else "derived"
        ),
        Setting(
            name="kv-cache-dtype",
            value="fp8" if setup.kv_bits == 8 else "16 bits",
            because="asked for" if placed.kv_cache_dtype != "auto" else "as the checkpoint says",
            source="user" if placed.kv_cache_dtype != "auto" else "derived",
        ),
        *(s for s in fitted.settings if s.name != "block-size"),
    ]
    if setup.model.task != "generate":
        found = [s for s in found if s.name != "kv-cache-dtype"]
    if limits.kv_cache_tokens is not None:
        because = "what is left of the memory; `mopt fit` shows how"
        if placed.engine != "vllm":
            because = f"by vLLM's rules; those of {placed.engine} are not modelled"
        share = speed.engine(setup.engine).free_memory_share
        if share is not None and placed.gpu_memory_utilization is None and placed.vram_bytes is None:
            because = f"{share:g} of what vLLM's weights, activations and graphs would leave of the card"
        found.append(
            Setting(
                name="KV cache",
                value=f"{limits.kv_cache_tokens:,} tokens",
                because=because,
                source="derived" if placed.engine == "vllm" else "assumed",
            )
        )
    if limits.cached_tokens:
        found.append(
            Setting(
                name="prefix cache",
                value=f"{limits.cached_tokens:,} tokens of each prompt",
                because="as asked, in whole blocks",
                source="user",
            )
        )
    if work.concurrency is None and work.qps is None and work.arrivals == "closed":
        alone = "no load was named"
        found.append(Setting(name="concurrency", value="1", because=alone, source="assumed"))
    return tuple(found)


def notes_of(question: EstimateQuestion, setup: Setup, fitted: Fit) -> tuple[str, ...]:
    notes: list[str] = []
    assumed = speed.engine(setup.engine).assumed
    if assumed:
        notes.append(f"{setup.engine}: {assumed}")
    if not fitted.version_known:
        notes.append(
            f"{question.placed.engine} {question.placed.version} is not in the facts; every number is of "
            f"{setup.version}"
        )
    if question.workload.arrivals == "burst" and question.workload.output_tokens.kind == "fixed":
        notes.append(
            "with lengths that vary, the last long answers run alone and a burst takes longer than this: "
            "pass a distribution, for example --output-tokens lognormal:128,1180"
        )
    if setup.tensor_parallel > 2 and not setup.gpu.nvlink_bytes_per_s:
        notes.append(
            "all-reduces over PCIe: the two machines that were measured differ 4 to 6 times with 4 to 8 "
            "GPUs; the middle is taken"
        )
    if question.placed.data_parallel > 1:
        notes.append(f"{question.placed.data_parallel} replicas share the load evenly")
    return tuple(notes)
