"""The screen of `mopt verify`."""

from model_optimizer.core import Comparison, Verdict

from .render import printable, table

MEANING = {
    "token_ids": "texts that its own tokenizer cuts as the reference's does",
    "finite": "rows without NaN or infinity",
    "recovery": "perplexity of the reference / of the candidate",
    "top1": "same most likely token, near-ties apart",
    "top1_near_ties": "the same where the reference hardly prefers one",
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
}
REPORTED = "reported"
"""`wanted` of a comparison that informs and decides nothing."""
OUTCOME = {"pass": "pass", "fail": "FAIL", "undecided": "?"}


def verdict_text(verdict: Verdict) -> str:
    """The verdict, its comparisons, and what would settle it."""
    rows = [["metric", "got", "95 % interval", "wanted", "", "samples", "what it is"]]
    rows += [_row(c) for c in verdict.comparisons]
    lines = [
        f"{verdict.outcome.upper()}: layer {verdict.layer}, {verdict.because}",
        f"candidate: {verdict.subject}",
        f"reference: {verdict.reference} (PyTorch, float32)",
        "",
        table(rows, right=frozenset({1, 5})),
    ]
    text = "\n".join([*lines, *map(_note, filter(_tells_more, verdict.comparisons))]) + "\n"
    if verdict.more_samples:
        text += f"hint: about {verdict.more_samples} more texts would decide; pass them with --texts FILE\n"
    return printable(text)


def _tells_more(comparison: Comparison) -> bool:
    """Whether the place or the reason says something that the table does not."""
    return comparison.wanted != REPORTED or comparison.metric == "kl" or comparison.metric.endswith("_ulp")


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
        MEANING.get(comparison.metric, ""),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if 0.01 <= abs(value) < 10 else f"{value:.4g}"
