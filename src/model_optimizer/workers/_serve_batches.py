"""Which sequences are worth computing together: what is padded is computed too."""

from collections.abc import Sequence

SLACK_SHARE = 1.25
SLACK_TOKENS = 16


def groups(lengths: Sequence[int], most_tokens: int, most: int | None = None) -> list[list[int]]:
    """Positions of sequences of about equal length, shortest first.

    A group pads its shortest member by at most a quarter and 16 tokens, and holds at most `most_tokens`
    with padding and `most` members; a single sequence may be longer.
    """
    found: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        group = found[-1] if found else []
        length = lengths[position]
        fits = (
            bool(group)
            and length <= SLACK_SHARE * lengths[group[0]] + SLACK_TOKENS
            and length * (len(group) + 1) <= most_tokens
            and (most is None or len(group) < most)
        )
        if fits:
            group.append(position)
        else:
            found.append([position])
    return found
