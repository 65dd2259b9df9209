"""Which model of time answers: measurements, tables or the roofline, and speculation on top."""

from dataclasses import replace
from typing import TYPE_CHECKING

from model_optimizer.core import Fit, MoptError, UsageError, Workload
from model_optimizer.core.question import EstimateQuestion, SpeculationAsked
from model_optimizer.core.steps import StepModel
from model_optimizer.planner import service
from model_optimizer.planner.service import Limits, Question
from model_optimizer.planner.service.estimate import Scaled
from model_optimizer.planner.speed import Setup, roofline

from .desk import Desk

if TYPE_CHECKING:
    from model_optimizer.core.ledger import LedgerRow
    from model_optimizer.planner.speed.speculative import Draft, Speculation


def steps_of(question: EstimateQuestion, setup: Setup, limits: Limits, desk: Desk) -> StepModel:
    """The model of time that was asked for. UsageError when it cannot be had, with the reason."""
    asked = question.step_model
    plain = roofline(setup, calibration=desk.calibration(setup.gpu.name))
    if asked == "roofline":
        return plain
    base = plain
    if asked in ("auto", "tables"):
        base = _tables(setup, desk, required=asked == "tables") or plain
        if asked == "tables":
            return base
    found = _measured(setup, plain, base, limits, desk)
    if found is not None:
        return found
    if asked == "measured":
        raise UsageError(
            f"nothing was measured for {setup.scheme.name} with {setup.engine} {setup.version} "
            f"on {setup.gpu.name}",
            cause=("a measurement counts for the same GPU, minor version and scheme only",),
            hint=("measure with `mopt bench`, or take --step-model roofline",),
        )
    return base


def _tables(setup: Setup, desk: Desk, *, required: bool) -> StepModel | None:
    if desk.grid is None and not required:
        return None
    from model_optimizer.planner.speed import tables

    asked = tables.request(setup)
    because = asked.because if isinstance(asked, tables.Refused) else desk.tables_because
    if isinstance(asked, tables.Refused) or desk.grid is None:
        if required:
            raise UsageError(
                "there are no tables for this",
                cause=(because or "they are not at hand",),
                hint=("take --step-model roofline",),
                reference="tables-no-data",
            )
        return None
    try:
        return tables.tables(setup, desk.grid(asked))
    except MoptError as error:
        if required:
            raise
        desk.notes.append(f"no tables: {error.message}")
        return None


def _measured(
    setup: Setup, plain: StepModel, base: StepModel, limits: Limits, desk: Desk
) -> StepModel | None:
    rows = desk.ledger(setup.gpu.name, setup.engine)
    if not rows:
        return None
    from model_optimizer.planner.speed import measured

    chosen = measured.matching(rows, setup)
    if not chosen:
        return None

    def predict(row: "LedgerRow") -> float | None:
        return _predicted(row, setup, base, limits)

    found = measured.correct(base, chosen, setup, predict)
    if found is None or found.kind != "measured":
        return found
    # Slower steps also change who waits for whom, so that what was corrected once is looked at again.
    again = measured.correct(found, chosen, setup, lambda row: _predicted(row, setup, found, limits))
    if again is None or again.places != found.places:
        return found
    return replace(found, factors=tuple(a + b for a, b in zip(found.factors, again.factors, strict=True)))


def _predicted(row: "LedgerRow", setup: Setup, base: StepModel, limits: Limits) -> float | None:
    """What the uncorrected steps say of a row. Rows of other models are compared by their own shape."""
    steps = base
    if row.model.lower() != setup.model.name.lower():
        from model_optimizer.system import models

        try:
            steps = roofline(replace(setup, model=models.read(row.model)))
        except MoptError:
            return None
    said = row.settings
    own = replace(
        limits,
        max_num_seqs=int(said.get("max-num-seqs", limits.max_num_seqs)),
        max_num_batched_tokens=int(said.get("max-num-batched-tokens", limits.max_num_batched_tokens)),
        kv_cache_tokens=None,
        cached_tokens=0,
    )
    answer = service.estimate(Question(steps=steps, limits=own, workload=row.workload))
    # The mean also for a median: clients that move in step make a median jump between two values.
    return answer.tpot_ms.mean if row.quantity.startswith("tpot_ms") else None


def speculate(
    question: EstimateQuestion, setup: Setup, steps: StepModel, work: Workload
) -> tuple[StepModel, tuple[str, ...]]:
    """Speculative decoding on top, and where it begins to pay."""
    asked = question.speculation
    if asked is None:
        return steps, ()
    from model_optimizer.planner.speed import speculative as drafting

    if setup.model.task != "generate":
        raise UsageError(f"`{setup.model.name}` generates nothing that could be drafted")
    speculation = drafting.Speculation(
        method=asked.method,
        tokens=asked.tokens,
        acceptance=drafting.ASSUMED[asked.method] if asked.acceptance is None else asked.acceptance,
        assumed=asked.acceptance is None,
    )
    model = drafting.speculative(steps, speculation, _draft(asked, speculation, setup, steps))
    context = work.prompt_tokens.mean + work.output_tokens.mean / 2
    batch = work.concurrency or 1
    least, most = model.break_even_acceptance(batch, context), model.break_even_batch(context)
    gain = model.gain(batch, context)
    notes = [
        f"speculative decoding: {gain:.2f} times the tokens a second of plain decoding at {batch} sequences",
        f"times of steps are divided by the {speculation.yields:.2f} tokens that one gives a sequence",
        f"it pays from an acceptance of {least:.0%} a token on"
        if least is not None
        else "it does not pay at this load, whatever the acceptance",
        f"it pays up to {most} sequences at once" if most else "it pays at no number of sequences",
    ]
    return model, tuple(notes)


def _draft(asked: SpeculationAsked, speculation: "Speculation", setup: Setup, steps: StepModel) -> "Draft":
    from model_optimizer.planner.speed import speculative as drafting

    if asked.method == "ngram":
        return drafting.ngram_draft(speculation)
    if asked.method == "draft":
        if asked.model is None:
            raise UsageError(
                "speculating with `draft` needs a model that drafts", hint=("pass --draft-model",)
            )
        return drafting.model_draft(speculation, roofline(replace(setup, model=asked.model)))
    model = setup.model
    head = (model.head_parameters or model.vocab_size * model.hidden_size) / max(model.active_parameters, 1)
    if asked.method == "mtp" and not model.mtp_parameters:
        raise UsageError(
            f"`{model.name}` has no layers that predict further tokens",
            hint=("take ngram, draft or eagle3",),
        )
    return drafting.layer_draft(speculation, steps, model.layers, min(head, 0.5))


def marked(steps: StepModel, fitted: Fit) -> StepModel:
    """Numbers of a release that the facts do not hold say so, each of them."""
    if fitted.version_known:
        return steps
    text = f"{steps.provenance}; its release is not in the facts, the nearest one stands for it"
    return Scaled(steps, 1.0, kind=steps.kind, provenance=text)
