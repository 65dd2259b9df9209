"""Pages of what is commonly said, and of the words of the trade; tools/pages.py writes them."""

from pathlib import Path

from model_optimizer.facts import folklore, read
from model_optimizer.facts.folklore import Claim
from model_optimizer.facts.glossary import Term

MADE = "<!-- Made by tools/pages.py from the file itself; edit that file. -->"
VERDICTS = {
    "true": "True",
    "false": "False",
    "outdated": "Outdated",
    "depends": "It depends",
    "unverifiable": "Not known",
}


def pages() -> dict[Path, str]:
    """One page a subject, and an index to search."""
    found = {Path("folklore") / f"{name}.md": claims_page(name) for name in folklore.subjects()}
    found |= {Path("glossary") / f"{path.stem}.md": terms_page(path) for path in _glossaries()}
    found[Path("folklore/index.md")] = claims_index()
    found[Path("glossary/index.md")] = terms_index()
    return found


def _glossaries() -> list[Path]:
    return sorted((read.ROOT / "glossary").glob("*.toml"))


def _heading(path: Path) -> str:
    return path.read_text("utf-8").splitlines()[0].lstrip("# ").rstrip(".")


def claims_page(name: str) -> str:
    path = read.ROOT / "folklore" / f"{name}.toml"
    rows = read.toml_rows(path, "claim", Claim)
    parts = [f"{MADE}\n# {_heading(path)}"]
    for one in rows:
        lines = [f"## {one.said}", f"**{VERDICTS[one.verdict]}.** {one.why}"]
        lines += [f"What to do: {one.do}"] if one.do else []
        parts += [*lines, f"From: {'; '.join(one.source)}."]
    return "\n\n".join(parts) + "\n"


def claims_index() -> str:
    count = len(folklore.claims())
    lines = [
        f'{MADE}\n# What is commonly said\n\n{count} claims; `mopt explain "..."` finds the one that you mean.'
    ]
    for name in folklore.subjects():
        path = read.ROOT / "folklore" / f"{name}.toml"
        rows = read.toml_rows(path, "claim", Claim)
        listed = "\n".join(f"- {VERDICTS[one.verdict]}: {one.said}" for one in rows)
        lines.append(f"## [{_heading(path)}]({name}.md)\n\n{listed}")
    return "\n\n".join(lines) + "\n"


def terms_page(path: Path) -> str:
    parts = [f"{MADE}\n# {_heading(path)}"]
    for one in read.toml_rows(path, "term", Term):
        parts += [f"## {one.name}", one.means]
        parts += [f"Also called: {', '.join(one.also)}."] if one.also else []
        parts += list(one.watch)
        parts += ["\n".join(f"- `{step}`" for step in one.do)] if one.do else []
        parts.append(f"From: {'; '.join(one.source)}.")
    return "\n\n".join(parts) + "\n"


def terms_index() -> str:
    lines = [f"{MADE}\n# Words of the trade\n\n`mopt explain WORD` shows one."]
    for path in _glossaries():
        rows = read.toml_rows(path, "term", Term)
        lines.append(f"## [{_heading(path)}]({path.stem}.md)\n\n{', '.join(one.name for one in rows)}")
    return "\n\n".join(lines) + "\n"
