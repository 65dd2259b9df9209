"""SGLang's server."""

from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.explain import names, options, text
from model_optimizer.explain.question import Question

TITLE = "SGLang server"
MODULE = "sglang.launch_server"


def matches(words: list[str]) -> bool:
    return MODULE in words[:4] or words[:2] == ["sglang", "serve"]


def explain(words: list[str], question: Question) -> Explanation:
    """The command with the options of the release, and a remark about each that needs one."""
    at = words.index(MODULE) + 1 if MODULE in words else 2
    head, rest = words[:at], words[at:]
    table = names.table_of(question, "sglang")
    given, free = options.read(rest, "sglang", table)
    result = options.translate(given, "sglang", table, question)
    points = list(result.points)
    host = result.given.get("--host")
    if host and host.value in ("0.0.0.0", "::") and "--api-key" not in result.given:
        says = "listens on every interface without a key; leave it out for 127.0.0.1, or add --api-key"
        points.append(Point(about="--host", level="warn", says=says))
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title="an SGLang server",
        means=(
            "It is valid as written."
            if not any(p.level in ("wrong", "changed") for p in points)
            else "Parts of it are no longer valid.",
        ),
        points=tuple(points),
        today=(text.masked(text.line([*head, *free, *result.words])),),
        today_for=f"SGLang {table.version}",
        source=(f"facts/flags/sglang/{table.version}",),
    )
