"""Convolutional networks: ResNet for classifying images, YOLOv8 with masks (FastSAM) for cutting them up.

Their sizes come from the headers of the weights; the configuration gives the depth and the widths.
"""

from model_optimizer.core import Weight
from model_optimizer.system.models.config import Config
from model_optimizer.system.models.shape import Shape

MODEL_TYPES = ("resnet", "yolo_seg")


def shape(config: Config) -> Shape:
    """There is no attention and no cache; `hidden_size` is the width of the last stage."""
    if config.model_type == "yolo_seg":
        widths, depth = config.numbers("widths"), sum(config.numbers("depths"))
    else:
        widths, depth = config.numbers("hidden_sizes"), sum(config.numbers("depths"))
    if not widths or depth < 1:
        config.misunderstood("`depths` and the widths of the stages are lists of whole numbers")
    last = max((1, *widths))
    return Shape(
        layers=max(1, depth),
        hidden_size=last,
        intermediate_size=last,
        vocab_size=0,
        heads=1,
        kv_heads=1,
        head_dim=last,
        attention="none",
        groups=(),
        weights=(Weight(name="stem", shape=(max(1, widths[0]) if widths else 1, 3, 3, 3), role="vision"),),
    )
