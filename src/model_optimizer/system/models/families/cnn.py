"""Convolutional networks: ResNet for classifying images, YOLOv8 with masks (FastSAM) for cutting them up."""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.decoder import label_count
from model_optimizer.system.models.parts import linear, vector
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("resnet", "yolo_seg")


def shape(config: Config) -> Shape:
    """There is no attention and no cache; `hidden_size` is the width of the last stage.

    The weights of YOLOv8 are counted in their file's header alone.
    """
    names = ("widths", "depths") if config.model_type == "yolo_seg" else ("hidden_sizes", "depths")
    widths, depths = (config.numbers(name) for name in names)
    if not widths or not depths or min((*widths, *depths)) < 1:
        config.misunderstood(f"`{names[0]}` and `{names[1]}` are lists of whole numbers above zero")
        widths, depths = [1], [1]
    if config.model_type == "yolo_seg":
        weights = [Weight(name="model.0.conv.weight", shape=(widths[0], 3, 3, 3), role="vision")]
    else:
        weights = _resnet(config, widths, depths)
    return Shape(
        layers=sum(depths),
        hidden_size=widths[-1],
        intermediate_size=widths[-1],
        vocab_size=0,
        heads=1,
        kv_heads=1,
        head_dim=widths[-1],
        attention="none",
        groups=(),
        weights=tuple(weights),
    )


def _resnet(config: Config, widths: list[int], depths: list[int]) -> list[Weight]:
    """Blocks of two convolutions (basic) or of three with a narrow middle (bottleneck)."""
    classes = config.architecture.endswith("ForImageClassification")
    root = "resnet." if classes else ""
    stem = config.need("embedding_size")
    bottleneck = (config.text("layer_type") or "bottleneck") == "bottleneck"
    early = config.flag("downsample_in_first_stage")
    weights = _convolution(f"{root}embedder.embedder", stem, config.count("num_channels", default=3), 7)
    into = stem
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=False)):
        halves = stage > 0 or early
        for block in range(depth):
            place = f"{root}encoder.stages.{stage}.layers.{block}"
            if into != width or (block == 0 and halves):
                weights += _convolution(f"{place}.shortcut", width, into, 1)
            inner = width // 4
            sizes = [(inner, into, 1), (inner, inner, 3), (width, inner, 1)] if bottleneck else [
                (width, into, 3), (width, width, 3)]  # fmt: skip
            for number, (out, before, kernel) in enumerate(sizes):
                weights += _convolution(f"{place}.layer.{number}", out, before, kernel)
            into = width
    if classes:
        weights += linear("classifier.1", label_count(config), into, 1, role="classifier", bias=True)
    return weights


def _convolution(name: str, out: int, into: int, kernel: int) -> list[Weight]:
    """Without a bias: the norm after it has one."""
    made = [Weight(name=f"{name}.convolution.weight", shape=(out, into, kernel, kernel), role="vision")]
    made += vector(f"{name}.normalization.weight", out, 1, role="norm")
    return made + vector(f"{name}.normalization.bias", out, 1, role="norm")
