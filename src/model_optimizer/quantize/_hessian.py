"""What GPTQ's statistics of a layer's inputs rest on: enough tokens, and none that drowns the others.

The numbers and their reasons are in facts/decisions/rules.toml.
"""

from collections.abc import Mapping

from model_optimizer.facts import decisions


def statistics() -> Mapping[str, float]:
    """What a worker is handed."""
    return {
        name: decisions.rule(f"gptq-{name.replace('_', '-')}").value
        for name in ("dampening", "longest_token", "tokens_per_column")
    }


def few_tokens(columns: int, tokens: int) -> tuple[str, ...]:
    """A warning where calibration texts, even if none is short, have too few tokens for the widest layer."""
    rule = decisions.rule("gptq-tokens-per-column")
    wanted = round(rule.value * columns)
    if tokens >= wanted:
        return ()
    return (
        f"few calibration tokens: {tokens:,} at most for {columns:,} columns, {tokens / columns:.1f} each; "
        f"below {rule.value:g} GPTQ fits these texts and loses on others: {wanted:,} are enough (--samples, "
        "--calibration-length)",
    )
