"""The screen of `mopt verify`."""

from model_optimizer.core import Comparison, Verdict

from . import render_quality
from .render import printable, table

MEANING = {
    "token_ids": "texts that its own tokenizer cuts as the reference's does",
    "finite": "rows without NaN or infinity",
    "recovery": "perplexity of the reference / of the candidate",
    "top1": "same most likely token, near-ties apart",
    "top1_near_ties": "the same where the reference hardly prefers one",
    "topk": "most likely token is among the candidate's five",
    "same_to_end": "prompts continued with the same tokens, near-ties apart",
    "tokens_before_difference": "tokens that both continue alike, mean",
    "part_at_near_tie": "prompts that part where the reference hardly prefers one",
    "top5_overlap": "shared among the five most likely tokens",
    "kl": "divergence of the distributions, nats a token",
    "perplexity": "of the candidate",
    "perplexity_reference": "of the reference",
    "logits_ulp": "largest difference, in units of the last place",
    "cosine": "direction of the vectors, mean",
    "cosine_p01": "the worst hundredth",
    "rank": "texts that find their nearest neighbour, or one about as near",
    "rank_exact": "texts that find the very same neighbour",
    "vectors_ulp": "largest difference, in units of the last place",
    "dimensions": "numbers in a vector",
    "score_correlation": "correlation of the scores",
    "score_order": "pairs of documents that keep their order, near-ties apart",
    "score_order_near_ties": "the same where two score about equally",
    "scores_ulp": "largest difference, in units of the last place",
    "labels": "scores of a pair",
    "step_export": "what the export adds to the answers",
    "step_clean_up": "what the clean-up adds",
    "step_cast": "what 16 bits add",
    "step_quantize": "what quantizing adds",
    "step_engine": "what the engine adds to its graph",
    "step_several": "what several steps add, whose graphs between are not there",
    "step_runtime": "what the runtime's own rewriting adds",
    "error_rate": "requests that failed",
    "mixed_streams": "answers that hold what was said to others",
    "same_vectors": "least cosine of a vector under load to the one alone",
    "same_tokens": "tokens that are the same under load as alone, near-ties apart",
    "same_answers": "whole answers that are the same",
    "starvation": "slowest answer / median of equal ones",
    "token_time_drift": "time per token, later half / earlier half",
    "tool_calls": "tool calls that keep their schema",
    "json_schema": "answers that keep the schema asked for",
    "reasoning_split": "thoughts apart from the answer",
    "ttft_ms": "time to the first token",
    "tpot_ms": "time per token after it",
    "e2e_ms": "time of the whole answer",
    "steady": "latency in the second half of the load",
    "left_running": "requests running at rest",
    "kv_held": "KV cache held at rest",
    "boxes_iou": "boxes: common area / area of both",
    "masks_iou": "masks: common area / area of both",
    "labels_same": "same likeliest label",
    "scores_cosine": "direction of all scores of a picture",
    "own_error": "one operator alone, on the reference's inputs",
}
REPORTED = "reported"
"""`wanted` of a comparison that informs and decides nothing."""
OUTCOME = {"pass": "pass", "fail": "FAIL", "undecided": "?"}


def verdict_text(verdict: Verdict) -> str:
    """The verdict, its comparisons, and what would settle it."""
    if verdict.layer == "format":
        return format_text(verdict)
    rows = [["metric", "got", "95 % interval", "wanted", "", "samples", "what it is"]]
    shown = render_quality.main_rows(verdict)
    rows += [_row(c) for c in shown]
    lines = [
        f"{verdict.outcome.upper()}: layer {verdict.layer}, {verdict.because}",
        f"candidate: {verdict.subject}",
        *([f"reference: {verdict.reference} (PyTorch, float32)"] if verdict.reference else []),
        "",
        table(rows, right=frozenset({1, 5})),
    ]
    text = "\n".join([*lines, *map(_note, filter(_tells_more, shown))]) + "\n"
    text += render_quality.sections(verdict)
    if verdict.more_samples:
        text += f"hint: about {verdict.more_samples} more texts would decide; pass them with --texts FILE\n"
    return printable(text)


def format_text(verdict: Verdict) -> str:
    """A linter's screen: a line a rule, and where it is from for what is broken."""
    mark = {"pass": "ok", "fail": "FAIL", "undecided": "?"}
    lines = [
        f"{verdict.outcome.upper()}: layer format, {verdict.because}",
        f"checkpoint: {verdict.subject}",
        "",
    ]
    for c in verdict.comparisons:
        sign = "note" if c.wanted == REPORTED else mark[c.outcome]
        lines.append(f"{sign:<5} {c.metric:<14} {c.where}")
        if c.outcome != "pass" and c.because:
            lines.append(f"{'':<20} because: {c.because}")
    return printable("\n".join(lines) + "\n")


def _tells_more(comparison: Comparison) -> bool:
    """Whether the place or the reason says something that the table does not."""
    name = comparison.metric
    return comparison.wanted != REPORTED or name in ("kl", "same_to_end") or name.endswith("_ulp")


def _note(comparison: Comparison) -> str:
    return f"{comparison.metric}: {'; '.join(filter(None, (comparison.where, comparison.because)))}"


def _row(comparison: Comparison) -> list[str]:
    low, high = comparison.interval or (None, None)
    return [
        comparison.metric,
        _number(comparison.got),
        f"{_number(low)} to {_number(high)}" if comparison.interval else "",
        comparison.wanted if comparison.wanted != REPORTED else "-",
        OUTCOME[comparison.outcome] if comparison.wanted != REPORTED else "",
        f"{comparison.samples:,}" if comparison.samples else "",
        MEANING.get(comparison.metric) or render_quality.MEANING.get(comparison.metric, ""),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if 0.01 <= abs(value) < 10 else f"{value:.4g}"
