"""Write the pages that are made from files: one for each check, each scheme and each failure signature.

python tools/pages.py            write them
python tools/pages.py --check    exit with 1 when one is not what the files say
"""

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pages_of_words

from model_optimizer.core import Scheme, plugins
from model_optimizer.diagnose import signature
from model_optimizer.diagnose.signature import LAYERS, Signature
from model_optimizer.doctor.run import LAYERS as LAYERS_OF_DOCTOR
from model_optimizer.doctor.run import layer as layer_of

DOCS = Path(__file__).parents[1] / "docs"
ROOMS = ("checks", "schemes", "signatures", "folklore", "glossary")
PLATFORMS = {
    "ubuntu": "Ubuntu",
    "debian": "Debian",
    "rhel": "RHEL, Rocky",
    "wsl2": "WSL2",
    "windows": "Windows",
}
KINDS = {
    "root": "shows a cause",
    "client": "shows a cause at the client",
    "contributing": "contributes or follows, and is not the cause by itself",
    "wrapper": "says only that something failed, and is never the cause",
    "benign": "is harmless",
}
MADE = "<!-- Made by tools/pages.py from the file itself; edit that file. -->"


def pages() -> dict[Path, str]:
    """Every page by its path below docs/."""
    of_doctor = ("model_optimizer.doctor.checks", "model_optimizer.doctor.endpoint_checks")
    checks = {name: module for room in of_doctor for name, module in plugins.load_all(room).items()}
    schemes = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}
    found = {Path("checks") / f"{name}.md": check_page(name, module) for name, module in checks.items()}
    found |= {Path("schemes") / f"{name}.md": scheme_page(scheme) for name, scheme in schemes.items()}
    found[Path("checks/index.md")] = check_index(checks)
    found[Path("schemes/index.md")] = index("Number formats", {n: s.title for n, s in schemes.items()})
    return found | signature_pages() | pages_of_words.pages()


def signature_pages() -> dict[Path, str]:
    """One for each known failure, and an index of what each looks like in a log."""
    known = signature.load((signature.FOLDER,))
    found = {Path("signatures") / f"{one.id}.md": signature_page(one) for one in known}
    found[Path("signatures/index.md")] = signature_index(known)
    return found


def signature_page(one: Signature) -> str:
    head, body = one.head, one.body
    on = [f"{PLATFORMS[p]}: {step}" for p, steps in body.fix_on.items() for step in steps]
    parts = [
        f"{MADE}\n# {one.id}",
        f"Layer: {head.layer}. The line {KINDS[head.kind]}.",
        f"```text\n{body.example.strip()}\n```",
        body.cause,
        "## What to do",
        bullets([*body.fix, *on]),
    ]
    if body.otherwise:
        parts += ["When that was tried already:", bullets(body.otherwise)]
    if body.risk:
        parts.append(f"Risk: {body.risk}")
    if body.probe:
        parts += ["## What confirms it", f"```sh\n{body.probe}\n```"]
    parts.append(f"Known from: {'; '.join(body.source)} ({body.evidence}).")
    return "\n\n".join(parts) + "\n"


def signature_index(known: Sequence[Signature]) -> str:
    """By layer from the bottom up; each with the words that it is found by, to search the page for."""
    lines = [f"{MADE}\n# Failures that `mopt diagnose` knows\n\nSearch this page for words of your log."]
    for layer in LAYERS:
        rows = [
            f"- [{one.id}]({one.id}.md): {' · '.join(f'`` {f} ``' for f in one.head.fragments[:3])}"
            for one in known
            if one.head.layer == layer
        ]
        if rows:
            lines.append(f"## {layer}\n\n" + "\n".join(rows))
    return "\n\n".join(lines) + "\n"


def bullets(steps: Sequence[str]) -> str:
    return "\n".join(f"- {step}" for step in steps)


def title(module: Any) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def check_page(name: str, module: Any) -> str:
    rest = inspect.cleandoc(module.__doc__ or "").partition("\n")[2].strip()
    after = ", ".join(f"[{n}]({n}.md)" for n in module.AFTER) or "nothing"
    where = f"Layer: {layer_of(module)}." + (
        " Asked with `--for` only." if hasattr(module, "TARGETED") else ""
    )
    said = bullets(messages(module))
    parts = [
        f"{MADE}\n# {name}",
        title(module),
        rest,
        f"{where} Runs after: {after}.",
        f"## What it says\n\n{said}" if said else "",
        f"Rule from: {'; '.join(module.SOURCE)}." if hasattr(module, "SOURCE") else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def messages(module: Any) -> list[str]:
    """What a check can answer when something is wrong: its literal messages, with `...` for what varies."""
    found: list[str] = []
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding"):
            continue
        given = {word.arg: word.value for word in node.keywords}
        status = ast.unparse(given["status"]) if "status" in given else ""
        if "fail" in status or "warn" in status:
            words = _literal(given.get("message"))
            found.append(f"{'fails' if 'fail' in status else 'warns'}: {words}")
    return [words for words in dict.fromkeys(found) if not words.endswith(": ...")]


def _literal(node: Any) -> str:
    """The text of a string as it stands in the file."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(v.value) if isinstance(v, ast.Constant) else "..." for v in node.values)
        return text.replace("......", "...")
    if isinstance(node, ast.IfExp):
        return f"{_literal(node.body)}, or {_literal(node.orelse)}"
    return "..."


def check_index(checks: Mapping[str, Any]) -> str:
    """By layer from the bottom up, with what each says when something is wrong, to search the page for."""
    lines = [f"{MADE}\n# Checks of `mopt doctor`\n\nSearch this page for words of the answer."]
    for one in LAYERS_OF_DOCTOR:
        rows: list[str] = []
        for name, module in checks.items():
            if layer_of(module) == one:
                rows.append(f"- [{name}]({name}.md): {title(module)}")
                rows += [f"  - {words}" for words in messages(module)]
        if rows:
            lines.append(f"## {one}\n\n" + "\n".join(rows))
    return "\n\n".join(lines) + "\n"


def scheme_page(scheme: Scheme) -> str:
    gate = scheme.gate
    facts = {
        "weights": f"{scheme.weight_bits} bits, {scheme.weight_number}",
        "activations": f"{scheme.activation_bits} bits, {scheme.activation_number}",
        "one scale for": f"{scheme.group_size} weights" if scheme.group_size else "a channel, or none",
        "calibration": "needed" if scheme.needs_calibration else "not needed",
        "GPU": capability(scheme),
        "must keep": (
            f"recovery {gate.recovery:g}, top-1 {gate.top1:g}, cosine {gate.cosine:g}, rank {gate.rank:g}"
        ),
        "source of the limits": gate.source,
        "source": scheme.source,
    }
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    return f"{MADE}\n# {scheme.name}\n\n{scheme.title}\n\n| | |\n|---|---|\n{rows}\n"


def capability(scheme: Scheme) -> str:
    """Where it runs and where it is computed in its own numbers."""
    lowest, native = scheme.min_compute_capability, scheme.native_compute_capability
    words = "any" if lowest is None else f"compute capability {dotted(lowest)} and later"
    if native and native != lowest:
        words += f"; below {dotted(native)} it is stored so and computed in 16 bits"
    if scheme.max_compute_capability:
        words += f"; not after {dotted(scheme.max_compute_capability)}"
    return words


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def index(heading: str, titles: Mapping[str, str]) -> str:
    rows = "\n".join(f"- [{name}]({name}.md): {text}" for name, text in titles.items())
    return f"{MADE}\n# {heading}\n\n{rows}\n"


def main() -> int:
    check = "--check" in sys.argv[1:]
    wanted = pages()
    there = {p.relative_to(DOCS) for room in ROOMS for p in (DOCS / room).glob("*.md")}
    wrong = [p for p, text in wanted.items() if p not in there or (DOCS / p).read_text() != text]
    stale = sorted(there - set(wanted))
    if check:
        print("\n".join(f"not current: docs/{p}" for p in [*wrong, *stale]) or "all pages are current")
        return int(bool(wrong or stale))
    for path in wrong:
        (DOCS / path).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / path).write_text(wanted[path])
    for path in stale:
        (DOCS / path).unlink()
    print(f"{len(wrong)} written, {len(stale)} removed, {len(wanted)} pages in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
