"""Optimization profiles from the lengths that will be asked: for which shapes an engine is built, and tuned.

An engine takes shapes between min and max of a profile and is tuned for opt. So opt covers 95 % of the
requests, and where most are much shorter than that, they get a profile of their own: kernels tuned for 512
tokens compute 40 tokens slowly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_optimizer.core import Lengths, UsageError
from model_optimizer.core.profiles import HELD, require_held

COVERED = 0.95
STEP = 8
"""Lengths are rounded up to this many tokens, which tensor cores like."""
WASTED = 0.5
"""From this share of computed but unused tokens on, short requests get a profile of their own."""

Axis = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """For each free dimension its least, best and largest size; and the share of requests that it is for."""

    axes: Mapping[str, Axis]
    because: str
    source: str = "derived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the shapes follow from. `batch` is (least, usual, most) requests at once; `longest` what the model
    takes.

    `sizes` are (height, width) of images, the usual one first, for models of images.
    """

    lengths: Lengths | None = None
    batch: Axis = (1, 8, 32)
    longest: int | None = None
    sizes: Sequence[tuple[int, int]] = ()
    at_once: int | None = None
    """Most requests at once that were asked for in words; None where nobody said."""


def derive(free: Sequence[str], asked: Asked) -> tuple[Profile, ...]:
    """The profiles for the free dimensions of a graph. UsageError when the model cannot hold the load.

    Dimensions it has no rule for are left out; the builder names them.
    """
    axes: dict[str, Axis] = {"batch": asked.batch} if "batch" in free else {}
    axes |= _sides(free, asked)
    if "sequence" not in free:
        if not axes:
            return ()
        return (Profile(axes=axes, because=f"{asked.batch[0]} to {asked.batch[2]} inputs at once"),)
    if asked.lengths is None and asked.longest is None:
        return (Profile(axes=axes, because="nothing says how long inputs are"),) if axes else ()
    lengths = asked.lengths or Lengths(kind="uniform", numbers=(1, asked.longest or 1))
    return tuple(
        Profile(axes={**axes, "sequence": axis}, because=because)
        for axis, because in _lengths(lengths, asked.longest)
    )


def parse(text: str) -> Profile:
    """`batch=1:8:32,sequence=1:128:512` as a profile. Raises UsageError."""
    axes: dict[str, Axis] = {}
    for part in text.split(","):
        name, equals, rest = part.strip().partition("=")
        try:
            numbers = tuple(int(number) for number in rest.split(":"))
        except ValueError:
            numbers = ()
        if len(numbers) == 1:
            numbers *= 3
        if not equals or len(numbers) != 3 or not 1 <= numbers[0] <= numbers[1] <= numbers[2]:
            raise UsageError(
                f"`{part.strip()}` is no range of sizes",
                hint=("write NAME=MIN:OPT:MAX with MIN <= OPT <= MAX, as batch=1:8:32,sequence=1:128:512",),
                reference="profile",
            )
        axes[name] = (numbers[0], numbers[1], numbers[2])
    return Profile(axes=axes, because="as asked", source="user")


def require_holds(profiles: Sequence[Profile], lengths: Lengths | None, batch: int | None) -> None:
    """Refuse profiles that some request of the load would not fit into. Raises UsageError."""
    wanted = {"sequence": lengths.quantile(HELD) if lengths else None, "batch": batch}
    require_held([profile.axes for profile in profiles], wanted, ())


def require_sizes(inputs: Mapping[str, Sequence[int | str]], profiles: Sequence[Profile]) -> None:
    """Refuse to build for a free dimension that no size is given for, before anything is made. Raises
    UsageError.
    """
    free = dict.fromkeys(d for shape in inputs.values() for d in shape if isinstance(d, str))
    if not free:
        return
    for axes in [profile.axes for profile in profiles] or [{}]:
        if missing := [name for name in free if name not in axes]:
            raise UsageError(
                f"no sizes are given for the free dimensions {', '.join(missing)}",
                cause=tuple(f"{name}: {' x '.join(map(str, shape))}" for name, shape in inputs.items()),
                hint=(f"--profile {','.join(f'{name}=MIN:OPT:MAX' for name in free)}",),
                reference="no-profile",
            )
        if unknown := [name for name in axes if name not in free]:
            raise UsageError(
                f"the graph has no free dimension {', '.join(unknown)}",
                cause=tuple(f"{name}: {' x '.join(map(str, shape))}" for name, shape in inputs.items()),
                hint=(f"its free dimensions are {', '.join(free)}",),
                reference="profile",
            )


def _lengths(lengths: Lengths, longest: int | None) -> list[tuple[Axis, str]]:
    most = lengths.quantile(HELD)
    if longest is not None and most > longest:
        raise UsageError(
            f"requests of {most:,} tokens are too long for this model",
            cause=(f"it takes {longest:,} tokens",),
            hint=("lower --prompt-tokens",),
            reference="profile",
        )
    limit = longest or most
    best, largest = min(limit, _up(lengths.quantile(COVERED))), min(limit, _up(most))
    wasted = 1 - lengths.mean / best
    if wasted <= WASTED:
        return [((1, best, largest), f"{best} tokens hold {COVERED:.0%} of the requests")]
    middle = min(best, _up(lengths.quantile(0.5)))
    if middle >= best:
        return [((1, best, largest), f"{best} tokens hold {COVERED:.0%} of the requests")]
    return [
        (
            (1, middle, middle),
            f"half of the requests have at most {middle} tokens: at {best}, {wasted:.0%} of the work "
            "would be for nothing",
        ),
        ((min(middle + 1, largest), best, largest), f"{best} tokens hold {COVERED:.0%} of the requests"),
    ]


def _sides(free: Sequence[str], asked: Asked) -> dict[str, Axis]:
    found: dict[str, Axis] = {}
    for place, name in enumerate(("height", "width")):
        if name in free and asked.sizes:
            sides = [size[place] for size in asked.sizes]
            found[name] = (min(sides), sides[0], max(sides))
    return found


def _up(tokens: int) -> int:
    return -(-tokens // STEP) * STEP
