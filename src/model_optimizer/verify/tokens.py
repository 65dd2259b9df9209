"""Language models: the next-token distributions of two models over the same texts, teacher forced."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from model_optimizer.core import Gate

from .intervals import Interval, decide_mean, exponential, proportion, ratio
from .judged import Judged, drifted, gated, gated_share, reported, wrong
from .limits import NEAR_TIE, QUOTED_PROMPTS
from .numeric import drift
from .outputs import Outputs

Pair = tuple[Outputs, Outputs]
"""Reference and candidate on the same texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One predicted token under both models; log-probabilities and `kl` in nats."""

    agrees: bool
    near_tie: bool
    overlap: float
    listed: bool
    log_reference: float
    log_candidate: float
    kl: float
    drift: tuple[float, float]


def judge(pairs: Sequence[Pair], gate: Gate) -> tuple[Judged, ...]:
    """Every comparison of two language models. A value that is not finite leaves nothing else to compare."""
    broken = _not_finite(pairs)
    if broken:
        return (broken,)
    texts = [
        [position(reference, candidate, at) for at in reference.positions(text)]
        for reference, candidate in pairs
        for text in range(reference.texts)
    ]
    texts = [text for text in texts if text]
    return (
        _recovery(texts, gate),
        *_top1(texts, gate),
        _top5(texts, gate),
        *_shape(texts, sum(candidate.bounded for _, candidate in pairs)),
        drifted("logits_ulp", [p.drift for text in texts for p in text], pairs[0][1]),
    )


def _not_finite(pairs: Sequence[Pair]) -> Judged | None:
    for name, side in (("reference", [r for r, _ in pairs]), ("candidate", [c for _, c in pairs])):
        total = sum(len(outputs.arrays["finite"]) for outputs in side)
        bad = sum(list(outputs.arrays["finite"]).count(0) for outputs in side)
        if bad:
            return wrong(
                "finite",
                1 - bad / total,
                "= 1",
                where=f"{name}, {_first_bad(side)}",
                samples=total,
                because=f"{bad} of {total} rows of the {name}'s logits hold NaN or infinity",
            )
    return None


def _first_bad(side: Sequence[Outputs]) -> str:
    before = 0
    for outputs in side:
        for text in range(outputs.texts):
            for number, at in enumerate(outputs.positions(text), 1):
                if not outputs.arrays["finite"][at]:
                    return f"text {before + text + 1}, position {number}"
        before += outputs.texts
    return "nowhere"


def position(reference: Outputs, candidate: Outputs, at: int) -> Position:
    """What two models say of one position; `at` is its row in both files."""
    ref_sum, cand_sum = reference.arrays["logsumexp"][at], candidate.arrays["logsumexp"][at]
    wanted, got = reference.row("top_logits", at), candidate.row("asked_logits", at)
    ref_ids, cand_ids = reference.row("top_ids", at), candidate.row("top_ids", at)
    # Of a token that a server does not list no more is known than an upper bound: it joins all others.
    listed = [
        (a - ref_sum, b - cand_sum)
        for a, b, known in zip(wanted, got, candidate.known(at), strict=True)
        if known
    ]
    return Position(
        agrees=ref_ids[0] == cand_ids[0],
        near_tie=wanted[0] - wanted[1] < NEAR_TIE,
        overlap=len(set(ref_ids[:5]) & set(cand_ids[:5])) / len(ref_ids[:5]),
        listed=ref_ids[0] in list(cand_ids[:5]),
        log_reference=reference.arrays["true_logit"][at] - ref_sum,
        log_candidate=candidate.arrays["true_logit"][at] - cand_sum,
        kl=divergence([a for a, _ in listed], [b for _, b in listed]),
        drift=drift(_as_logits(reference, candidate, at), wanted, candidate.dtype),
    )


def _as_logits(reference: Outputs, candidate: Outputs, at: int) -> Sequence[float]:
    """The candidate's logits of the asked tokens, to be held against the reference's.

    Log-probabilities are moved to where the reference's logits are: how far a whole row is shifted is lost in
    them and changes no probability. An upper bound above the wanted value shows no difference.
    """
    got = candidate.row("asked_logits", at)
    if not candidate.normalised:
        return got
    shift = reference.arrays["logsumexp"][at]
    wanted = reference.row("top_logits", at)
    return [
        b + shift if known else min(b + shift, a)
        for a, b, known in zip(wanted, got, candidate.known(at), strict=True)
    ]


def divergence(reference: Sequence[float], candidate: Sequence[float]) -> float:
    """Kullback-Leibler divergence in nats over the listed tokens and one bucket for all others.

    Both hold log-probabilities of the same tokens. Merging the others can only lower it, so that it is a
    lower bound of the divergence over the whole vocabulary.
    """
    p = [math.exp(x) for x in reference]
    rest_p, rest_q = 1 - sum(p), 1 - sum(math.exp(x) for x in candidate)
    listed = sum(share * (a - b) for share, a, b in zip(p, reference, candidate, strict=True))
    # What remains of 1 is lost in rounding once the listed tokens hold all of it.
    rest = rest_p * math.log(rest_p / max(rest_q, 1e-9)) if rest_p > 1e-9 else 0.0
    return max(0.0, listed + rest)


def _recovery(texts: Sequence[Sequence[Position]], gate: Gate) -> Judged:
    """Perplexity of the reference over that of the candidate, paired by text."""
    gains = ratio([(sum(p.log_candidate - p.log_reference for p in t), len(t)) for t in texts])
    decision = decide_mean(gains, math.log(gate.recovery) if gate.recovery > 0 else -math.inf)
    before, after = (_perplexity(texts, side) for side in ("reference", "candidate"))
    where = f"perplexity {before.estimate:.4g} became {after.estimate:.4g}"
    return gated("recovery", exponential(gains), gate.recovery, decision, where=where, samples=_count(texts))


def _perplexity(texts: Sequence[Sequence[Position]], side: str) -> Interval:
    logs = [
        (-sum(p.log_reference if side == "reference" else p.log_candidate for p in text), len(text))
        for text in texts
    ]
    return exponential(ratio(logs))


def _top1(texts: Sequence[Sequence[Position]], gate: Gate) -> tuple[Judged, ...]:
    """Agreement of the most likely token; near-ties of the reference are counted apart."""
    counts = {
        tied: [
            (float(sum(p.agrees for p in text if p.near_tie == tied)), sum(p.near_tie == tied for p in text))
            for text in texts
        ]
        for tied in (False, True)
    }
    clear, tied = counts[False], counts[True]
    tries, tied_tries = (sum(n for _, n in rows) for rows in (clear, tied))
    missed = [round(n - s) for s, n in clear]
    most = max(range(len(missed)), key=missed.__getitem__)
    where = f"{sum(missed)} of {tries} clear positions differ"
    if missed[most]:
        where += f", most in text {most + 1} ({missed[most]})"
    found = [gated_share("top1", clear, gate.top1, where=where)]
    if tied_tries:
        near = f"positions whose two best tokens are within {NEAR_TIE:g} nats in the reference"
        found.append(reported("top1_near_ties", proportion(tied), samples=tied_tries, where=near))
    return tuple(found)


def _top5(texts: Sequence[Sequence[Position]], gate: Gate) -> Judged:
    """Positions whose most likely token is among the candidate's five. Near-ties need not be set apart."""
    counts = [(float(sum(p.listed for p in text)), float(len(text))) for text in texts]
    missed = round(sum(n - s for s, n in counts))
    where = f"{missed} of {_count(texts)} positions in {len(texts)} texts have it further down"
    if gate.topk is not None and len(texts) < QUOTED_PROMPTS:
        where += f"; people quote this limit over {QUOTED_PROMPTS} prompts"
    if gate.topk is None:
        return reported("topk", proportion(counts), samples=_count(texts), where=where)
    return gated_share("topk", counts, gate.topk, where=where)


def _shape(texts: Sequence[Sequence[Position]], bounded: int) -> tuple[Judged, ...]:
    """How alike the distributions are beyond their best token.

    `bounded` asked tokens are so unlikely to the candidate that its server does not list them.
    """
    count = _count(texts)
    overlap = ratio([(sum(p.overlap for p in text), len(text)) for text in texts])
    kl = ratio([(sum(p.kl for p in text), len(text)) for text in texts])
    worst = max((p.kl, -number) for number, text in enumerate(texts) for p in text)
    before, after = (_perplexity(texts, side) for side in ("reference", "candidate"))
    unlisted = f"; tokens that the server does not list ({bounded}) are part of the rest" if bounded else ""
    return (
        reported("top5_overlap", overlap, samples=count, where="shared among the five best tokens"),
        reported(
            "kl",
            kl,
            samples=count,
            where=f"nats a token, a lower bound; largest {worst[0]:.3g} in text {1 - worst[1]}{unlisted}",
        ),
        reported("perplexity", after, samples=count, where=f"the reference has {before.estimate:.4g}"),
        reported("perplexity_reference", before, samples=count, where="the reference"),
    )


def _count(texts: Sequence[Sequence[Position]]) -> int:
    return sum(map(len, texts))
