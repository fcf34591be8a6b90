"""A detector of YOLOv5s shape (release 6): CSP backbone, path aggregation, three anchored heads."""

from __future__ import annotations

from workload_export.compose import Net, Tensor, compose, stack

CLASSES = 80
ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
STRIDES = (8, 16, 32)
_OUTPUTS = 5 + CLASSES


def yolov5s() -> Net:
    """Build the detector; forward takes images and returns (batch, boxes, 85) predictions."""
    from torch import nn

    return compose(
        _forward,
        fine=nn.Sequential(
            _conv(3, 32, 6, 2),
            _conv(32, 64, 3, 2),
            _csp(64, 64, 1),
            _conv(64, 128, 3, 2),
            _csp(128, 128, 2),
        ),
        middle=nn.Sequential(_conv(128, 256, 3, 2), _csp(256, 256, 3)),
        coarse=nn.Sequential(_conv(256, 512, 3, 2), _csp(512, 512, 1), _pyramid(512)),
        neck=_neck(),
        heads=stack([_head(wide, level) for level, wide in enumerate((128, 256, 512))]),
    )


def _forward(net: Net, images: Tensor) -> Tensor:
    import torch

    fine = net.fine(images)
    middle = net.middle(fine)
    levels = net.neck(fine, middle, net.coarse(middle))
    return torch.cat([head(x) for head, x in zip(net.heads, levels, strict=True)], dim=1)


def _conv(wide: int, channels: int, kernel: int = 1, stride: int = 1) -> Net:
    from torch import nn

    padding = (kernel - 1) // 2
    convolution = nn.Conv2d(wide, channels, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels, eps=1e-3), nn.SiLU())


def _bottleneck(channels: int, *, shortcut: bool) -> Net:
    from torch import nn

    body = nn.Sequential(_conv(channels, channels), _conv(channels, channels, 3))
    return compose(lambda m, x: x + m.body(x), body=body) if shortcut else body


def _csp(wide: int, channels: int, depth: int, *, shortcut: bool = True) -> Net:
    """Build a cross-stage partial block: half of the channels pass `depth` bottlenecks."""
    from torch import nn

    half = channels // 2
    deep = [_bottleneck(half, shortcut=shortcut) for _ in range(depth)]
    return compose(
        _csp_forward,
        deep=nn.Sequential(_conv(wide, half), *deep),
        flat=_conv(wide, half),
        join=_conv(channels, channels),
    )


def _csp_forward(block: Net, x: Tensor) -> Tensor:
    import torch

    return block.join(torch.cat([block.deep(x), block.flat(x)], dim=1))


def _pyramid(channels: int) -> Net:
    """Build spatial pyramid pooling, fast form: one 5 by 5 maximum applied three times."""
    from torch import nn

    half = channels // 2
    return compose(
        _pyramid_forward,
        enter=_conv(channels, half),
        pool=nn.MaxPool2d(5, 1, 2),
        leave=_conv(4 * half, channels),
    )


def _pyramid_forward(block: Net, x: Tensor) -> Tensor:
    import torch

    levels = [block.enter(x)]
    for _ in range(3):
        levels.append(block.pool(levels[-1]))
    return block.leave(torch.cat(levels, dim=1))


def _neck() -> Net:
    from torch import nn

    return compose(
        _neck_forward,
        grow=nn.Upsample(scale_factor=2.0, mode="nearest"),
        narrow_coarse=_conv(512, 256),
        up_middle=_csp(512, 256, 1, shortcut=False),
        narrow_middle=_conv(256, 128),
        up_fine=_csp(256, 128, 1, shortcut=False),
        shrink_fine=_conv(128, 128, 3, 2),
        down_middle=_csp(256, 256, 1, shortcut=False),
        shrink_middle=_conv(256, 256, 3, 2),
        down_coarse=_csp(512, 512, 1, shortcut=False),
    )


def _neck_forward(neck: Net, fine: Tensor, middle: Tensor, coarse: Tensor) -> list[Tensor]:
    import torch

    coarse = neck.narrow_coarse(coarse)
    middle = neck.narrow_middle(neck.up_middle(torch.cat([neck.grow(coarse), middle], dim=1)))
    fine = neck.up_fine(torch.cat([neck.grow(middle), fine], dim=1))
    middle = neck.down_middle(torch.cat([neck.shrink_fine(fine), middle], dim=1))
    coarse = neck.down_coarse(torch.cat([neck.shrink_middle(middle), coarse], dim=1))
    return [fine, middle, coarse]


def _head(wide: int, level: int) -> Net:
    import torch

    sizes = torch.tensor(ANCHORS[level], dtype=torch.float32).view(1, -1, 1, 1, 2)
    net = compose(_head_forward, project=torch.nn.Conv2d(wide, len(sizes[0]) * _OUTPUTS, 1))
    net.register_buffer("sizes", sizes, persistent=False)
    net.stride = float(STRIDES[level])
    return net


def _head_forward(head: Net, x: Tensor) -> Tensor:
    """Decode boxes: centres relative to the cell, sizes relative to the anchor, in pixels."""
    import torch

    height, width = x.shape[2:]
    raw = head.project(x).unflatten(1, (-1, _OUTPUTS)).permute(0, 1, 3, 4, 2).sigmoid()
    column, row, size, scores = raw.split([1, 1, 2, _OUTPUTS - 4], dim=-1)
    column = (column * 2 + (torch.arange(width).view(1, 1, 1, -1, 1) - 0.5)) * head.stride
    row = (row * 2 + (torch.arange(height).view(1, 1, -1, 1, 1) - 0.5)) * head.stride
    boxes = torch.cat([column, row, (size * 2) ** 2 * head.sizes, scores], dim=-1)
    return boxes.flatten(1, 3)
