"""An estimate for llama.cpp: slots instead of a growing batch, layers on the CPU where the card is small."""

from dataclasses import replace

from model_optimizer.core import Estimate, Fit, NoFeasiblePlan, Setting, UsageError
from model_optimizer.core.question import EstimateQuestion
from model_optimizer.facts import gpus, speed
from model_optimizer.planner import service
from model_optimizer.planner.images import Images, encoded
from model_optimizer.planner.memory import llama_cpp as memory
from model_optimizer.planner.service import Limits, Question
from model_optimizer.planner.speed import llama_cpp

from .check import longest
from .desk import Desk
from .words import image_notes


def estimate(question: EstimateQuestion, desk: Desk, images: Images) -> Estimate:
    """What a load will see of one llama-server. NoFeasiblePlan when the layers asked for do not fit."""
    _refuse(question)
    derived = question.placed.max_model_len is None
    question = _with_context(question)
    placed, work = question.placed, question.workload
    model = placed.gguf or memory.from_spec(placed.model, placed.scheme)
    fitted, layers = _fitted(question, desk, len(model.layers) + 1)
    size, numbers = memory.CACHE_TYPES[placed.kv_cache_dtype.lower()]
    steps = llama_cpp.steps(
        model, placed.model, gpus.find(placed.gpu.name), layers=layers, cache_bits=8 * size / numbers
    )
    prompts, rate = work.prompt_tokens, llama_cpp.sixteen_bit_rate
    steps = encoded(steps, images.operations, prompts, gpu=gpus.find(placed.gpu.name), parts=1, rate=rate)
    slots = placed.max_num_seqs or 1
    limits = Limits(
        max_num_seqs=slots,
        max_num_batched_tokens=speed.llama_cpp().micro_batch,
        cached_tokens=work.shared_prefix if slots == 1 else 0,
    )
    return service.estimate(
        Question(
            steps=steps,
            limits=limits,
            workload=work,
            replicas=placed.data_parallel,
            settings=_settings(question, fitted, layers, model.format, derived=derived),
            notes=(*_notes(question, layers, len(model.layers)), *image_notes(images), *desk.notes),
        )
    )


def _refuse(question: EstimateQuestion) -> None:
    if question.speculation is not None:
        raise UsageError("speculative decoding is not modelled for llama.cpp")
    if question.step_model not in ("auto", "roofline"):
        raise UsageError(f"llama.cpp has no `{question.step_model}` steps", hint=("leave --step-model out",))
    if question.expert_parallel:
        raise UsageError("llama.cpp does not divide experts", hint=("leave --expert-parallel out",))


def _with_context(question: EstimateQuestion) -> EstimateQuestion:
    """A context in which the longest request fits, where none was asked for."""
    placed, work = question.placed, question.workload
    if placed.max_model_len is not None:
        return question
    wanted = longest(work.prompt_tokens)
    wanted += longest(work.output_tokens) if work.task == "generate" else 0
    length = -(-wanted // memory.PADDING) * memory.PADDING
    most = placed.gguf.max_position if placed.gguf else placed.model.max_position
    return replace(question, placed=replace(placed, max_model_len=min(length, most or length)))


def _fitted(question: EstimateQuestion, desk: Desk, every: int) -> tuple[Fit, int]:
    """As many layers as fit when no number was asked for."""
    placed = question.placed
    if placed.gpu_layers is not None:
        found = desk.fit(placed)
        if not found.fits:
            raise NoFeasiblePlan(
                f"{placed.gpu_layers} layers of {found.model} do not fit on {found.gpu}",
                cause=(found.because,),
                hint=("`mopt fit --engine llama.cpp` shows the memory term by term",),
            )
        return found, min(placed.gpu_layers, every)
    for layers in range(every, -1, -1):
        found = desk.fit(replace(placed, gpu_layers=layers))
        if found.fits:
            return found, layers
    raise NoFeasiblePlan(
        f"not even the buffers of {placed.model.name} fit on {placed.gpu.name}",
        hint=("shorten --max-model-len or lower --max-num-seqs",),
    )


def _settings(
    question: EstimateQuestion, fitted: Fit, layers: int, name: str, *, derived: bool
) -> tuple[Setting, ...]:
    """`derived` when the context was chosen here."""
    asked = question.placed.gpu_layers is not None
    rest = tuple(
        replace(s, because="holds the longest request in each slot", source="derived")
        if derived and s.name == "ctx-size"
        else s
        for s in fitted.settings
        if s.name != "n-gpu-layers"
    )
    return (
        Setting(name="format", value=name, because=fitted.notes[0] if fitted.notes else "", source="derived"),
        Setting(
            name="n-gpu-layers",
            value=str(layers),
            because="asked for" if asked else "as many as fit, the head counted last",
            source="user" if asked else "derived",
        ),
        *rest,
    )


def _notes(question: EstimateQuestion, layers: int, every: int) -> tuple[str, ...]:
    notes: list[str] = []
    if layers < every:
        notes.append(
            f"{every - layers} of {every} layers are computed by the CPU, whose memory is taken to give "
            "38 GB/s: measure with `mopt bench`"
        )
    if question.placed.tensor_parallel > 1:
        notes.append(
            "layers are divided between the GPUs and computed one after the other: more room, not speed"
        )
    work, slots = question.workload, question.placed.max_num_seqs
    if slots is None and (work.concurrency or 2) > 1:
        notes.append(
            "llama-server answers one request at a time unless --max-num-seqs (its --parallel) is given"
        )
    if question.placed.gguf is not None:
        notes.append(
            "a GGUF header does not say how many experts a token visits: all weights are taken to be read"
        )
    return tuple(notes)
