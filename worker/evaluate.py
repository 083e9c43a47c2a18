"""Load a saved model outside of any training, and test it.

python worker/evaluate.py my_net.pth [--data-dir DIR] [--model NAME] [--dataset NAME] [--limit-test N]
"""

from __future__ import annotations

import sys

import torch

from data import load_images, prepare_data
from model import build_model
from process_group import Place, TrainingError
from settings import parse_settings
from train import evaluate


def main() -> None:
    """Print the test accuracy of the file named first on the command line."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise TrainingError(__doc__ or "")
    settings = parse_settings(sys.argv[2:])
    place = Place(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"), grouped=False)
    prepare_data(settings, place)
    net = build_model(settings.model, settings.seed)
    net.load_state_dict(torch.load(sys.argv[1], map_location="cpu", weights_only=True))
    accuracy, loss, count = evaluate(net, load_images(settings, train=False), settings.batch_size, place)
    print(f"test accuracy {accuracy:.4f}, test loss {loss:.4f} ({count} images)")


if __name__ == "__main__":
    main()
