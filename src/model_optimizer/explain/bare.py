"""Options that stand alone, without the program that they belong to."""

from model_optimizer.facts import flags

from . import names, options, text
from .question import Question

BEFORE = {
    "vllm": ["vllm", "serve", "MODEL"],
    "sglang": ["python", "-m", "sglang.launch_server"],
    "trtexec": ["trtexec"],
    "trtllm_serve": ["trtllm-serve", "MODEL"],
    "trtllm_build": ["trtllm-build"],
}
"""How a command of each program begins."""
MOST_WORDS = 200


def command(thing: str, question: Question) -> list[str] | None:
    """Several options and nothing else, as a command of the program that knows most of them."""
    words = text.words(text.joined_lines(thing))
    if not words or not words[0].startswith("-") or len(words) > MOST_WORDS:
        return None
    known = {engine: _known(words, engine) for engine in names.programs(question.engine)}
    best = max(known, key=lambda engine: known[engine], default=None)
    return [*BEFORE[best], *words] if best is not None and known[best] else None


def _known(words: list[str], engine: str) -> int:
    """How many of the options the program has or had; 0 where a word is no option, or there is but one."""
    given, free = options.read(words, engine, flags.table(engine))
    if free or len(given) < 2:
        return 0
    return sum(one.name is not None for one in given)
