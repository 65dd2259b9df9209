"""Turn reStructuredText of the Python documentation into plain text with light Markdown."""

import re

_HEADING = re.compile(r"^(=|-|~|\^|\*|#|\+){3,}\s*$")
_ROLE_WITH_TARGET = re.compile(r":[A-Za-z][\w:+-]*:`([^`<]+?)\s*<[^`>]*>`")
_ROLE = re.compile(r":[A-Za-z][\w:+-]*:`([^`]+)`")
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
_REFERENCE = re.compile(r"`([^`]+)`__?")
_DIRECTIVE = re.compile(r"^(\s*)\.\. ([A-Za-z][\w:+-]*)::\s*(.*)$")
_COMMENT = re.compile(r"^(\s*)\.\.(\s|$)")
_OPTION = re.compile(r"^\s+:[a-z-]+:(\s|$)")

# Directives whose body says nothing to a reader.
_DROPPED = frozenset(
    [
        "index",
        "sectionauthor",
        "moduleauthor",
        "toctree",
        "tabularcolumns",
        "testsetup",
        "testcleanup",
        "audit-event",
        "highlight",
        "include",
        "literalinclude",
        "image",
        "figure",
        "contents",
        "only",
        "program",
        "audit-event-table",
        "limited-api-list",
        "raw",
        "miscnews",
        "module",
        "currentmodule",
    ]
)
# Directives that only wrap their body.
_TRANSPARENT = frozenset(
    [
        "code-block",
        "sourcecode",
        "doctest",
        "testcode",
        "testoutput",
        "parsed-literal",
        "list-table",
        "table",
        "glossary",
        "epigraph",
        "productionlist",
        "topic",
        "sidebar",
        "impl-detail",
        "rubric",
    ]
)
_TITLES = {
    "note": "Note:",
    "seealso": "See also:",
    "warning": "Warning:",
    "important": "Important:",
    "caution": "Caution:",
    "availability": "Availability:",
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "deprecated-removed": "Deprecated since version",
}


def plain(text: str) -> str:
    """Inline markup removed: `:func:`~os.walk`` and ```os.walk``` both become `os.walk` in backquotes."""
    text = _ROLE_WITH_TARGET.sub(lambda match: match.group(1), text)
    text = _ROLE.sub(lambda match: "`" + _short(match.group(1)) + "`", text)
    text = _LINK.sub(lambda match: match.group(1), text)
    text = text.replace("``", "`")
    text = _REFERENCE.sub(lambda match: "`" + match.group(1) + "`", text)
    return text.replace("\\ ", "").replace("\\*", "*").replace("\\_", "_")


def _short(target: str) -> str:
    if target.startswith("~"):
        return target[1:].rsplit(".", 1)[-1]
    return target.lstrip("!")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _heading(lines: list[str], at: int) -> bool:
    """Whether line `at` is a title with an underline of at least its length."""
    title = lines[at].strip()
    under = lines[at + 1].strip() if at + 1 < len(lines) else ""
    return bool(
        title and _HEADING.match(under) and not _HEADING.match(title) and len(under) >= len(title) - 1
    )


def _skip_block(lines: list[str], at: int, indent: int) -> int:
    """The first line after `at` that is not deeper than `indent`."""
    at += 1
    while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
        at += 1
    return at


def _directive(match: re.Match[str]) -> str | None:
    """What a directive line reads like; None if the line is dropped and its body kept."""
    indent, name, argument = match.groups()
    if name in _TRANSPARENT:
        return f"{indent}{argument}" if name in ("rubric", "topic", "sidebar") else None
    if name in _TITLES:
        return f"{indent}{_TITLES[name]} {argument}".rstrip()
    return f"{indent}{name.split(':')[-1]} {argument}".rstrip()


def rst_to_text(source: str) -> str:
    """The page as text; headings become `# Title`, comments and index entries go."""
    lines = source.expandtabs(8).splitlines()
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        match = _DIRECTIVE.match(line)
        if match and match.group(2) in _DROPPED:
            at = _skip_block(lines, at, len(match.group(1)))
        elif match:
            said = _directive(match)
            out.extend([] if said is None else [said])
            at += 1
            while at < len(lines) and _OPTION.match(lines[at]):
                at += 1
        elif _COMMENT.match(line):
            at = _skip_block(lines, at, _indent(line))
        elif _heading(lines, at):
            out.append(f"# {line.strip()}")
            at += 2
        else:
            if not _HEADING.match(line):
                out.append(line.rstrip())
            at += 1
    text = plain("\n".join(out)).replace("::\n", ":\n")
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def described_objects(source: str) -> list[tuple[str, str]]:
    """`(qualified name, first paragraph)` of each function, method and class that a page describes."""
    found: list[tuple[str, str]] = []
    module = ""
    lines = source.expandtabs(8).splitlines()
    for at, line in enumerate(lines):
        match = _DIRECTIVE.match(line)
        if not match:
            continue
        indent, name, argument = match.groups()
        if name in ("module", "currentmodule"):
            module = argument.strip()
        if name not in ("function", "method", "class", "decorator", "exception", "c:function"):
            continue
        called = re.sub(r"\(.*", "", argument.removeprefix("async ")).strip().split(" ")[-1].lstrip("*")
        paragraph = _first_paragraph(lines, at, len(indent))
        if called and 40 <= len(paragraph) <= 600:
            owner = "" if name == "c:function" or not module or called.startswith(module) else f"{module}."
            found.append((owner + called, paragraph))
    return found


def _first_paragraph(lines: list[str], at: int, indent: int) -> str:
    """The first indented paragraph under the directive at line `at`, on one line."""
    at += 1
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > indent:
        at += 1  # further signatures and options
    while at < len(lines) and not lines[at].strip():
        at += 1
    paragraph: list[str] = []
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > indent:
        if lines[at].lstrip().startswith(".. "):
            return ""
        paragraph.append(lines[at].strip())
        at += 1
    text = plain(" ".join(paragraph))
    return "" if text.endswith(":") else text
