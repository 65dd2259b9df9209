"""Text from outside: cleaned of control codes, its secrets masked, split into words and commands."""

import re
import shlex

MASK = "****"
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]{0,4000}(?:\x07|\x1b\\)?|\x1b\[[0-?]{0,64}[ -/]{0,16}[@-~]?|\x1b[@-_]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_KINDS = "TOKEN(?!S)|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?"
_NAME = rf"[A-Za-z0-9_]{{0,40}}(?:{_KINDS})[A-Za-z0-9_]{{0,40}}"
_ASSIGNED = re.compile(rf"(?i)\b({_NAME})(\s{{0,3}}[=:]\s{{0,3}})([\"']?)((?!\d{{1,9}}\b)[^\s\"'$]{{3,500}})")
_LAYER = re.compile(rf"(?im)^(\s{{0,20}}(?:ENV|ARG)\s{{1,9}}{_NAME}\s{{1,9}})([^\s$]{{3,500}})")
_OPTION = re.compile(
    r"(?i)(--?(?:hf[-_]token|api[-_]key|token|password|secret)(?:=|\s{1,3}))([\"']?)([^\s\"'$-][^\s\"']{0,500})"
)
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{12,200}|\bsk-[A-Za-z0-9_-]{12,200}|\bgh[opsu]_[A-Za-z0-9]{20,200}|\bnvapi-[\w-]{12,200}"
    r"|\bAKIA[A-Z0-9]{12,40}|(?<=Bearer )[\w.~+/-]{8,500}|(?<=://)[^\s/@:]{1,100}:[^\s/@]{1,200}(?=@)"
)


def clean(text: str) -> str:
    """The text without escape sequences and other control characters; line ends and tabs stay."""
    without = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROL.sub("", without).strip()


def masked(text: str) -> str:
    """The text with `****` where a key, token or password was given. Names of variables stay."""

    text = _SHAPES.sub(MASK, text)
    text = _OPTION.sub(lambda m: f"{m[1]}{m[2]}{MASK}", text)
    text = _LAYER.sub(lambda m: f"{m[1]}{MASK}", text)
    return _ASSIGNED.sub(lambda m: f"{m[1]}{m[2]}{m[3]}{MASK}", text)


def secrets(text: str) -> bool:
    """Whether the text holds something that `masked` would hide."""
    return masked(text) != text


def joined_lines(text: str) -> str:
    """Continued lines (a backslash, a backtick or a caret at the end) as one."""
    return re.sub(r"[ \t]*[\\`^][ \t]*\n[ \t]*", " ", text)


def words(line: str) -> list[str]:
    """The words of a shell line; a quote that is never closed is a character like any other."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def commands(text: str) -> list[list[str]]:
    """The commands of a text, each as its words, without what stands before them."""
    return [without_prefix(command) for command in lines(text)]


def lines(text: str) -> list[list[str]]:
    """The commands of a text as they stand there: lines, and parts between && ; and |."""
    found: list[list[str]] = []
    for line in joined_lines(text).splitlines():
        line = line.strip().removeprefix("$ ").removeprefix("sudo ")
        current: list[str] = []
        for word in words(line):
            if word in ("&&", "||", "|", ";", "&"):
                found.append(current)
                current = []
            elif word.endswith(";") and len(word) > 1:
                found.append([*current, word[:-1]])
                current = []
            else:
                current.append(word)
        found.append(current)
    return [command for command in found if command]


def without_prefix(command: list[str]) -> list[str]:
    """The command without `sudo`, `time`, `nohup` and leading `NAME=value`, which belong to the shell."""
    rest = list(command)
    while rest and (
        rest[0] in ("sudo", "time", "nohup", "exec") or re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", rest[0])
    ):
        rest = rest[1:]
    return rest or list(command)


def variables(command: str) -> list[tuple[str, str]]:
    """The `NAME=value` words before a command."""
    found: list[tuple[str, str]] = []
    for word in words(command.strip().removeprefix("$ ")):
        name, equals, value = word.partition("=")
        if word in ("sudo", "env", "export", "time", "nohup", "exec"):
            continue
        if not equals or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            break
        found.append((name, value))
    return found


def line(command: list[str] | tuple[str, ...]) -> str:
    """Words as one shell line, quoted where needed; `~` and variables stay what they are."""
    return " ".join(map(_quoted, command))


def _quoted(word: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./<>~-]+", word):
        return word
    return (
        f'"{word}"' if re.fullmatch(r"[\w@%+=:,./~${} -]*\$[\w@%+=:,./~${} -]*", word) else shlex.quote(word)
    )
