"""Images in the prompts of a language model: their places, and what the encoder computes for them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model_optimizer.core import Lengths, ModelSpec, UsageError
from model_optimizer.core.steps import StepModel
from model_optimizer.facts import decisions
from model_optimizer.facts.gpus import GpuFact
from model_optimizer.planner.memory import encoder
from model_optimizer.planner.speed.images import WithImages

SHARES = 400
"""Steps of a distribution that is written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """`count` of a prompt, None where nobody said; `size` is width and height, None the usual one."""

    model: ModelSpec
    count: int | None = None
    size: tuple[int, int] | None = None

    @property
    def pixels(self) -> tuple[int, int]:
        side = int(decisions.rule("image-side").value)
        return self.size or (side, side)

    @property
    def tokens(self) -> int | None:
        """Of one image; None where they are not known."""
        return encoder.image_tokens(self.model, *self.pixels)

    @property
    def operations(self) -> float:
        """Of the images of one prompt; 0 where there are none or the encoder's sizes are not known."""
        if not self.count:
            return 0.0
        return self.count * (encoder.operations(self.model, *self.pixels) or 0.0)

    def prompts(self, text: Lengths) -> Lengths:
        """Prompts of text and images. UsageError for images that the model does not read."""
        if not self.count and self.size is None:
            return text
        each = self.tokens if encoder.reads_images(self.model) else None
        if each is None:
            raise UsageError(
                f"--images: `{self.model.name}` is not known to read images",
                hint=("leave it out", "or count the places of its images with --prompt-tokens"),
            )
        if self.count is None:
            raise UsageError("--image-size belongs to --images N")
        return _longer(text, self.count * each)

    def said(self) -> str:
        """What the prediction holds of the encoder's time."""
        if not self.operations or not self.count:
            return "its time is not in the prediction"
        each = self.operations / self.count / 1e12
        return (
            f"{each:.3g} T operations an image, at the rate of products in 16 bits; "
            "no server with images was measured"
        )


def encoded(
    steps: StepModel,
    operations: float,
    prompts: Lengths,
    *,
    gpu: GpuFact,
    parts: int,
    rate: Callable[[GpuFact], float],
) -> StepModel:
    """The encoder's time on top, divided over the GPUs that share its layers."""
    if not operations:
        return steps
    return WithImages(inner=steps, token_ms=1e3 * operations / prompts.mean / parts / rate(gpu))


def _longer(lengths: Lengths, by: int) -> Lengths:
    """The same distribution, `by` tokens later."""
    numbers = lengths.numbers
    if lengths.kind == "fixed":
        return Lengths.fixed(int(numbers[0]) + by)
    if lengths.kind == "normal":
        return replace(lengths, numbers=(numbers[0] + by, numbers[1]))
    if lengths.kind == "lognormal":
        numbers = tuple(float(lengths.quantile((n + 0.5) / SHARES)) for n in range(SHARES))
        return Lengths(kind="empirical", numbers=tuple(n + by for n in numbers))
    return replace(lengths, numbers=tuple(n + by for n in numbers))
