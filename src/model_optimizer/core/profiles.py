"""Sizes that an engine was built for, beside those that will be asked of it."""

from collections.abc import Mapping, Sequence

from .errors import UsageError

Axes = Mapping[str, tuple[int, int, int]]
"""For each free dimension of an engine its least, usual and largest size."""

HELD = 0.999
"""The share of the requests that an engine must hold."""

WHAT = {"sequence": "tokens", "batch": "requests at once"}


def require_held(profiles: Sequence[Axes], wanted: Mapping[str, int | None], hints: tuple[str, ...]) -> None:
    """Refuse a load that no profile holds: the axis, its end and what was asked are named. Raises UsageError.

    An axis that no profile has is fixed or absent, and nothing is said of it here.
    """
    for name, size in wanted.items():
        largest = max((axes[name][2] for axes in profiles if name in axes), default=None)
        if size is not None and largest is not None and size > largest:
            raise UsageError(
                f"the profile cannot hold the load: {size:,} {WHAT.get(name, 'pixels')} are asked, {name} "
                f"ends at {largest:,}",
                hint=hints or (f"raise the last number of {name} to {size} or more",),
                reference="profile",
            )
