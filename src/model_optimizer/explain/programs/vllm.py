"""vLLM's server, in every form in which it was ever started."""

import json

from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.explain import environment, machine, names, options, text
from model_optimizer.explain.question import Question
from model_optimizer.facts import vllm as facts

TITLE = "vLLM server"
MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
SUBCOMMANDS = ("serve", "chat", "complete", "bench", "run-batch", "collect-env", "launch")
SPECULATIVE = {"--speculative-model": "model", "--num-speculative-tokens": "num_speculative_tokens"}
SOURCE = "vllm 0.33.0, entrypoints/cli/main.py and entrypoints/openai/api_server.py"


def matches(words: list[str]) -> bool:
    called = bool(words) and words[0].split("/")[-1] == "vllm"
    named = called and len(words) > 1 and (words[1].startswith("-") or words[1] in SUBCOMMANDS)
    return named or any(w in MODULES for w in words[:4])


def explain(words: list[str], question: Question) -> Explanation:
    """The command as `vllm serve MODEL ...` of the release, and a remark about each option that needs one."""
    form, rest = _form(words)
    table = names.table_of(question, "vllm")
    if form in SUBCOMMANDS and form != "serve":
        return Explanation(
            asked=text.masked(text.line(words)),
            kind="command",
            title=f"vllm {form}",
            means=(f"The subcommand `{form}` of vLLM; only the options of `vllm serve` have tables here.",),
            source=(SOURCE,),
        )
    given, free = options.read(rest, "vllm", table)
    result = options.translate(given, "vllm", table, question)
    kept, added, remarks = environment.translate(question.variables, "vllm", table)
    points = [*_of_form(form, words), *_of_model(result, free), *remarks]
    added += _speculative(result)
    command = [*kept, "vllm", "serve", *_model(result, free), *_without_model(result.words), *added]
    points += [*result.points, *_of_whole(result, question)]
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title=f"a vLLM server{_named(result, free)}",
        means=(_summary(points),),
        points=tuple(points),
        today=(text.masked(text.line(command)),),
        today_for=f"vLLM {table.version}",
        do=_do(_model(result, free)[0]),
        source=(f"facts/flags/vllm/{table.version}", SOURCE),
    )


def _form(words: list[str]) -> tuple[str, list[str]]:
    """How it was started (`serve`, a module, or nothing at all), and the words after that."""
    for at, word in enumerate(words[:4]):
        if word in MODULES:
            rest = words[at + 1 :]
            if word.endswith("cli.main"):
                return (rest[0], rest[1:]) if rest else ("", [])
            return word, rest
    if len(words) > 1 and words[1] in SUBCOMMANDS:
        return words[1], words[2:]
    return "", words[1:]


def _of_form(form: str, words: list[str]) -> list[Point]:
    if form == "":
        says = "the command needs a subcommand: `vllm serve MODEL`"
        return [Point(about=" ".join(words[:2]), level="wrong", says=says, source=SOURCE)]
    if form == MODULES[0]:
        says = "still runs with a warning that it may be removed; `vllm serve MODEL` is the same server"
        return [Point(about=f"python -m {form}", level="changed", says=says, source=SOURCE)]
    if form == MODULES[1]:
        says = "the module is gone; `vllm serve MODEL` is the server, with another API (/v1/...)"
        return [
            Point(
                about=f"python -m {form}",
                level="wrong",
                says=says,
                source="vllm 0.27.1, files of the package",
            )
        ]
    return []


def _model(result: options.Translation, free: list[str]) -> list[str]:
    given = result.given.get("--model")
    if free:
        return [free[0]]
    return [given.value] if given and given.value else ["MODEL"]


def _of_model(result: options.Translation, free: list[str]) -> list[Point]:
    found: list[Point] = []
    given = result.given.get("--model")
    if given and free:
        found.append(
            Point(about="--model", level="warn", says="the model is named twice; the first argument counts")
        )
    elif given:
        says = "the model is the first argument of `vllm serve`; as an option it still works, with a warning"
        found.append(Point(about="--model", level="changed", says=says))
    if len(free) > 1:
        says = f"vllm serve takes one model: `{' '.join(free[1:])[:80]}` is one word too many"
        found.append(Point(about=free[1][:40], level="wrong", says=says))
    return found


def _speculative(result: options.Translation) -> list[str]:
    """The options of old releases for speculative decoding, as the one of today."""
    given = {new: result.given[old].value for old, new in SPECULATIVE.items() if old in result.given}
    if not given.get("model"):
        return []
    values = {k: int(v) if v and v.isdigit() else v for k, v in given.items()}
    return ["--speculative-config", json.dumps(values, separators=(",", ":"))]


def _without_model(words: list[str]) -> list[str]:
    if "--model" not in words:
        return words
    at = words.index("--model")
    return words[:at] + words[at + 2 :]


def _of_whole(result: options.Translation, question: Question) -> list[Point]:
    """What only the options together tell."""
    given = result.given
    found: list[Point] = []
    host = given.get("--host")
    if "--uds" not in given and (host is None or host.value in ("0.0.0.0", "::")):
        key = "--api-key" in given
        says = "listens on every interface" + (
            " behind a key" if key else ": anyone who reaches the port may use it"
        )
        says += "; add --host 127.0.0.1 where only this machine shall"
        found.append(
            Point(about="--host", level="note" if key else "warn", says=says, source="vllm api_server.py")
        )
    for name in ("--api-key", "--hf-token"):
        if name in given and given[name].value:
            says = "a key in the command line is seen by every user in the list of processes; "
            says += "set VLLM_API_KEY instead" if name == "--api-key" else "set HF_TOKEN instead"
            found.append(Point(about=name, level="warn", says=says))
    if "--trust-remote-code" in given:
        says = (
            "runs Python from the model's repository with your rights; pin --revision, or use a "
            "model without it"
        )
        found.append(Point(about="--trust-remote-code", level="warn", says=says))
    if question.gpu is not None and "--quantization" not in given and "--dtype" not in given:
        found += list(machine.points("--dtype", None, question)) if _is_old(question) else []
    return found


def _is_old(question: Question) -> bool:
    least = facts.release(question.version_of("vllm") or facts.versions()[-1]).minimum_compute_capability
    return question.capability is not None and question.capability < max(least, machine.BF16_FROM)


def _named(result: options.Translation, free: list[str]) -> str:
    model = _model(result, free)[0]
    return "" if model == "MODEL" else f" of {model[:80]}"


def _summary(points: list[Point]) -> str:
    wrong = sum(p.level == "wrong" for p in points)
    gone = sum(p.level == "changed" and p.says.startswith("not in ") for p in points)
    changed = sum(p.level == "changed" for p in points) - gone
    parts = [f"{wrong} thing{'s' * (wrong > 1)} wrong"] if wrong else []
    parts += [f"{gone} option{'s' * (gone > 1)} gone"] if gone else []
    parts += [f"{changed} thing{'s' * (changed > 1)} written otherwise today"] if changed else []
    if wrong or gone:
        return f"As written it does not start: {', '.join(parts)}."
    return f"It works: {parts[0]}." if parts else "It is valid as written."


def _do(model: str) -> tuple[str, ...]:
    return (f"mopt plan {model[:80]} --gpu NAME --qps N derives these settings, each with its reason",)
