"""The U-Net: its logits are those of one in torch, written level by level, on the same weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.real import relative_difference
from support.recognised import Recognised
from support.theirs import load_weights, renamed

torch = pytest.importorskip("torch")

WIDTHS = (6, 10, 14, 18)
NAMES = {
    "before": "encoder",
    "after": "decoder",
    "first.conv": "0",
    "first.norm": "1",
    "second.conv": "3",
    "second.norm": "4",
    "w": "weight",
    "b": "bias",
    "scale": "weight",
    "mean": "running_mean",
    "variance": "running_var",
}


def two_convolutions(before: int, after: int) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


def make_unet(channels: int, classes: int) -> Any:
    """Down with a stack of what was seen on the way, and up again."""
    nn, functional = torch.nn, torch.nn.functional

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            pairs = list(zip((channels, *WIDTHS), WIDTHS, strict=False))
            self.encoder = nn.ModuleList(two_convolutions(a, b) for a, b in pairs)
            self.up = nn.ModuleList(nn.Conv2d(b, a, 2) for a, b in pairs[1:])
            self.decoder = nn.ModuleList(two_convolutions(2 * a, a) for a, _ in pairs[1:])
            self.head = nn.Conv2d(WIDTHS[0], classes, 1)

        def forward(self, x: Any) -> Any:
            seen = []
            for encode in self.encoder[:-1]:
                x = encode(x)
                seen.append(x)
                x = functional.max_pool2d(x, 2)
            x = self.encoder[-1](x)
            for number in reversed(range(len(seen))):
                x = functional.interpolate(x, scale_factor=2, mode="bilinear")
                x = self.up[number](functional.pad(x, (0, 1, 0, 1)))
                x = self.decoder[number](torch.cat([seen[number], x], 1))
            return self.head(x)

    return UNet()


def by_level(path: str) -> str:
    """`top.below.below.after.…` is `after.2.…`."""
    return re.sub(
        r"^top((?:\.below)*)\.(\w+)",
        lambda match: f"{match[2]}.{match[1].count('below')}",
        path.replace("up.conv", "up"),
    )


def test_logits_equal_torch(tmp_path: Path) -> None:
    ours = Recognised("unet", tmp_path, size=40, channels=3, classes=5, widths=WIDTHS)
    state = renamed({by_level(path): w for path, w in ours.weights.items()}, NAMES)
    theirs = load_weights(make_unet(3, 5), state)
    inputs = ours.inputs(3)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(inputs["inputs"])).numpy()
    assert expected.shape == (3, 5, 40, 40)
    assert relative_difference(ours.run(inputs)["output"], expected) < 1e-5
    ours.check_bf16(inputs)
