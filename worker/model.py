"""Any classifier of torchvision, for grey images and ten classes."""

from __future__ import annotations

import difflib

import torch
import torchvision
from torch import nn

from process_group import TrainingError

CLASSES = 10


def build_model(name: str, seed: int) -> nn.Module:
    """Make a model with random weights, the same ones for a seed in every process.

    The first convolution takes one channel instead of three, and is otherwise what it was: for ResNet-101 a 7x7 with
    stride 2 and no bias.

    Args:
        name: as torchvision knows it, `resnet101` or `mobilenet_v3_small`, say.
        seed: of the weights.
    Raises:
        TrainingError: torchvision has no such classifier, or it cannot take a 28x28 image.
    """
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise TrainingError(f"torchvision has no classifier {name!r}{hint}")
    torch.manual_seed(seed)
    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
    _take_grey(model)
    _refuse_unfit(name, model)
    return model


def _take_grey(model: nn.Module) -> None:
    for path, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            owner, _, attribute = path.rpartition(".")
            grey = nn.Conv2d(
                1,
                layer.out_channels,
                kernel_size=layer.kernel_size,  # type: ignore[arg-type]  # a pair, always
                stride=layer.stride,  # type: ignore[arg-type]
                padding=layer.padding,  # type: ignore[arg-type]
                bias=layer.bias is not None,
            )
            setattr(model.get_submodule(owner), attribute, grey)
            return


def _refuse_unfit(name: str, model: nn.Module) -> None:
    """Try one image: some models need larger ones, and some answer with more than class scores."""
    try:
        with torch.no_grad():
            scores = model.eval()(torch.zeros(1, 1, 28, 28))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise TrainingError(f"{name} cannot take a 28x28 image: {str(error).splitlines()[0]}") from error
    finally:
        model.train()
    if not isinstance(scores, torch.Tensor) or scores.shape != (1, CLASSES):
        raise TrainingError(f"{name} does not answer with {CLASSES} class scores")
