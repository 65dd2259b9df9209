"""Makes tiny models of images with random weights; run by the interpreter of the onnx environment.

    python make_vision.py WORKERS OUT

OUT gets resnet (a classifier of ten things) and yolo (a segmenter of free image size).
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import ResNetConfig, ResNetForImageClassification
from transformers.utils.logging import disable_progress_bar

sys.path.append(sys.argv[1])
from _yolo_segment import YoloSegment

disable_progress_bar()
torch.manual_seed(0)
out = Path(sys.argv[2])
CONFIG = {
    "model_type": "yolo_seg",
    "architectures": ["YoloForSegmentation"],
    "num_labels": 1,
    "image_size": 128,
    "widths": [8, 16, 32, 64, 128],
    "depths": [1, 1, 1, 1],
    "masks": 16,
    "prototypes": 32,
    "bins": 16,
}


def spread(model: torch.nn.Module) -> None:
    """Statistics as trained ones have them; zeros and ones would hide a norm that is left out."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.8, 1.2)
            module.bias.data.normal_(0, 0.1)


yolo = YoloSegment(CONFIG).eval()
spread(yolo)
(out / "yolo").mkdir(parents=True)
state = {name: weight.contiguous() for name, weight in yolo.state_dict().items()}
save_file(state, out / "yolo/model.safetensors", metadata={"format": "pt"})
(out / "yolo/config.json").write_text(json.dumps(CONFIG))
resnet = ResNetForImageClassification(
    ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        num_labels=10,
    )
).eval()
spread(resnet)
resnet.save_pretrained(out / "resnet")
