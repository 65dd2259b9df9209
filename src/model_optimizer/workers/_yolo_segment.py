"""YOLOv8 with masks, as FastSAM uses it: layers are numbered and named as in published weights.

config.json: {"model_type": "yolo_seg", "architectures": ["YoloForSegmentation"], "num_labels": 1,
"image_size": 640, "widths": [16, 32, 64, 128, 256], "depths": [1, 2, 2, 1], "masks": 32, "prototypes": 64,
"bins": 16}. The numbers are those of the nano size; larger ones are wider and deeper. model.safetensors holds
the state under `model.N. ...`.

Answer of the network: `detections` [b, 4 + labels + masks, places], boxes as centre and size in pixels and
scores after the sigmoid, and `prototypes` [b, masks, h/4, w/4]; a mask is the sigmoid of coefficients x
prototypes.
"""

from typing import Any

import torch
from torch import nn

STRIDES = (8, 16, 32)
STEP = 32


class Conv(nn.Module):
    def __init__(self, into: int, out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(out, eps=1e-3)
        self.act = nn.SiLU()

    def forward(self, x: Any) -> Any:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, width: int, *, add: bool) -> None:
        super().__init__()
        self.cv1, self.cv2, self.add = Conv(width, width, 3), Conv(width, width, 3), add

    def forward(self, x: Any) -> Any:
        found = self.cv2(self.cv1(x))
        return x + found if self.add else found


class C2f(nn.Module):
    def __init__(self, into: int, out: int, depth: int, *, add: bool) -> None:
        super().__init__()
        self.half = out // 2
        self.cv1 = Conv(into, out)
        self.cv2 = Conv((2 + depth) * self.half, out)
        self.m = nn.ModuleList(Bottleneck(self.half, add=add) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        parts = list(self.cv1(x).split((self.half, self.half), 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class SPPF(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = Conv(width, width // 2), Conv(2 * width, width)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Any) -> Any:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(self.m(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Proto(nn.Module):
    def __init__(self, into: int, width: int, masks: int) -> None:
        super().__init__()
        self.cv1, self.upsample = Conv(into, width, 3), nn.ConvTranspose2d(width, width, 2, 2)
        self.cv2, self.cv3 = Conv(width, width, 3), Conv(width, masks)

    def forward(self, x: Any) -> Any:
        return self.cv3(self.cv2(self.upsample(self.cv1(x))))


class DFL(nn.Module):
    """The mean of a distribution over distances, one a side."""

    def __init__(self, bins: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(bins, 1, 1, bias=False)
        self.conv.weight.data = torch.arange(bins, dtype=torch.float32).view(1, bins, 1, 1)
        self.bins = bins

    def forward(self, x: Any) -> Any:
        batch, _channels, places = x.shape
        return self.conv(x.view(batch, 4, self.bins, places).transpose(2, 1).softmax(1)).view(
            batch, 4, places
        )


class Segment(nn.Module):
    def __init__(self, widths: tuple[int, ...], labels: int, masks: int, prototypes: int, bins: int) -> None:
        super().__init__()
        box, score, mask = max(16, widths[0] // 4, 4 * bins), max(widths[0], min(labels, 100)), max(
            widths[0] // 4, masks
        )  # fmt: skip
        self.cv2 = _branches(widths, box, 4 * bins)
        self.cv3 = _branches(widths, score, labels)
        self.dfl = DFL(bins)
        self.proto = Proto(widths[0], prototypes, masks)
        self.cv4 = _branches(widths, mask, masks)

    def forward(self, maps: list[Any]) -> tuple[Any, Any]:
        boxes = torch.cat([b(x).flatten(2) for b, x in zip(self.cv2, maps, strict=True)], 2)
        scores = torch.cat([b(x).flatten(2) for b, x in zip(self.cv3, maps, strict=True)], 2)
        masks = torch.cat([b(x).flatten(2) for b, x in zip(self.cv4, maps, strict=True)], 2)
        centres, strides = _places(maps)
        sides = self.dfl(boxes)
        top_left, bottom_right = centres - sides[:, :2], centres + sides[:, 2:]
        found = torch.cat(((top_left + bottom_right) / 2, bottom_right - top_left), 1) * strides
        return torch.cat((found, scores.sigmoid(), masks), 1), self.proto(maps[0])


def _branches(widths: tuple[int, ...], inner: int, out: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Sequential(Conv(into, inner, 3), Conv(inner, inner, 3), nn.Conv2d(inner, out, 1))
        for into in widths
    )


def _places(maps: list[Any]) -> tuple[Any, Any]:
    """The centre of every place [1,2,n] in steps of its own map, and the stride of each [1,n]."""
    centres, strides = [], []
    for x, stride in zip(maps, STRIDES, strict=True):
        height, width = x.shape[2], x.shape[3]
        # Counted in whole numbers: a range of 16-bit floats is no graph that TensorRT's compiler takes.
        rows = (torch.arange(height, device=x.device).to(x.dtype) + 0.5).view(-1, 1).expand(height, width)
        columns = (torch.arange(width, device=x.device).to(x.dtype) + 0.5).view(1, -1).expand(height, width)
        centres.append(torch.stack((columns, rows)).flatten(1))
        strides.append(torch.full((1,), stride, dtype=x.dtype).expand(height * width))
    return torch.cat(centres, 1).unsqueeze(0), torch.cat(strides).unsqueeze(0)


class YoloSegment(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        a, b, c, d, e = config["widths"]
        n1, n2, n3, n4 = config["depths"]
        up = nn.Upsample(scale_factor=2, mode="nearest")
        head = Segment((c, d, e), config["num_labels"], config["masks"], config["prototypes"], config["bins"])
        self.model = nn.ModuleList([
            Conv(3, a, 3, 2), Conv(a, b, 3, 2), C2f(b, b, n1, add=True), Conv(b, c, 3, 2),
            C2f(c, c, n2, add=True), Conv(c, d, 3, 2), C2f(d, d, n3, add=True),
            Conv(d, e, 3, 2), C2f(e, e, n4, add=True), SPPF(e),
            up, nn.Identity(), C2f(e + d, d, n1, add=False), up, nn.Identity(), C2f(d + c, c, n1, add=False),
            Conv(c, c, 3, 2), nn.Identity(), C2f(c + d, d, n1, add=False),
            Conv(d, d, 3, 2), nn.Identity(), C2f(d + e, e, n1, add=False), head,
        ])  # fmt: skip

    def forward(self, pixel_values: Any) -> tuple[Any, Any]:
        m, x = self.model, pixel_values
        for number in range(5):
            x = m[number](x)
        small = x
        x = middle = m[6](m[5](x))
        x = deep = m[9](m[8](m[7](x)))
        x = up = m[12](torch.cat((m[10](x), middle), 1))
        x = near = m[15](torch.cat((m[13](x), small), 1))
        x = half = m[18](torch.cat((m[16](x), up), 1))
        return m[22]([near, half, m[21](torch.cat((m[19](x), deep), 1))])
