"""The data set: found, checked or downloaded once a host, and cut into every rank's batches."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import itertools
import shutil
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from process_group import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from process_group import Place
    from settings import Settings

SETS = {"mnist": torchvision.datasets.MNIST, "fashion-mnist": torchvision.datasets.FashionMNIST}
# Mean and standard deviation of the training images, grey values from 0 to 1.
SCALES = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}
SIDE = 28
# An idx file (yann.lecun.com/exdb/mnist): a magic number, then the length of each dimension, big-endian; then bytes.
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049
FILES = {
    "train-images-idx3-ubyte": IMAGES_MAGIC,
    "train-labels-idx1-ubyte": LABELS_MAGIC,
    "t10k-images-idx3-ubyte": IMAGES_MAGIC,
    "t10k-labels-idx1-ubyte": LABELS_MAGIC,
}


@dataclass(frozen=True)
class Images(Dataset[Any]):
    """Images and their labels, in memory.

    Attributes:
        pixels: uint8, [count, 28, 28].
        labels: int64, [count].
        scale: mean and standard deviation that `as_input` takes out.
    """

    pixels: Tensor
    labels: Tensor
    scale: tuple[float, float]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.pixels[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """Return a whole batch with one look-up; DataLoader asks for this where it is there."""
        return self.pixels[indices], self.labels[indices]

    def as_input(self, pixels: Tensor) -> Tensor:
        """Return what a model takes: float, [batch, 1, 28, 28], mean 0 and deviation 1 over the training set."""
        mean, deviation = self.scale
        return pixels.unsqueeze(1).float().div_(255).sub_(mean).div_(deviation)


def load_images(settings: Settings, *, train: bool) -> Images:
    """Load the training or the test images; `prepare_data` has seen to it that the files are there."""
    found = SETS[settings.dataset](str(settings.data_dir), train=train, download=False)
    pixels, labels = found.data, found.targets.long()
    limit = settings.limit_train if train else settings.limit_test
    if limit is not None and limit < len(labels):
        # A file may be sorted by class, so the first ones will not do.
        chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(settings.seed))[:limit]
        pixels, labels = pixels[chosen], labels[chosen]
    return Images(pixels, labels, SCALES[settings.dataset])


def batches_of(images: Images, settings: Settings, place: Place, epoch: int, seen: int = 0) -> list[list[int]]:
    """Return this rank's batches of an epoch, as indices: the same ones whenever they are asked for.

    Every rank has as many. At most world_size - 1 images are repeated so that it can, and none is left out, as
    DistributedSampler does it. A last batch of one image joins the one before it, since batch norm cannot take a
    single one; at the end of an epoch that went on with other ranks it may be the only one, and is left out.

    Args:
        images: the training set.
        settings: for batch size and seed.
        place: this rank among how many.
        epoch: counted from 0.
        seen: images of the epoch's order that another number of ranks has trained on before. All ranks together go
            through the order from its start, so what is left is its end.
    """
    sampler: DistributedSampler[Any] = DistributedSampler(
        images, num_replicas=1, rank=0, shuffle=True, seed=settings.seed
    )
    sampler.set_epoch(epoch)
    left = list(sampler)[seen:]
    even = -(-len(left) // place.world_size) * place.world_size
    order = list(itertools.islice(itertools.cycle(left), even))[place.rank :: place.world_size]
    batches = [order[start : start + settings.batch_size] for start in range(0, len(order), settings.batch_size)]
    if batches and len(batches[-1]) == 1 and (len(batches) > 1 or seen):
        last = batches.pop()
        if batches:
            batches[-1] = batches[-1] + last
    return batches


def loader(images: Images, batches: Sequence[list[int]], settings: Settings) -> DataLoader[Any]:
    """Return an iterable over (pixels, labels) of these batches, in order."""
    return DataLoader(
        images,
        batch_sampler=batches,
        collate_fn=_as_it_is,
        num_workers=settings.num_workers,
        pin_memory=torch.cuda.is_available(),
    )


def _as_it_is(batch: Any) -> Any:
    return batch


def prepare_data(settings: Settings, place: Place) -> None:
    """See to it that the data set is whole on this host; one process works, those beside it wait for the lock.

    Raises:
        TrainingError: a file is missing and may not be downloaded, cannot be, or is damaged; with its path.
    """
    raw = settings.data_dir / SETS[settings.dataset].__name__ / "raw"
    with _lock(settings.data_dir):
        _unpack(raw)
        missing = [name for name in FILES if not (raw / name).is_file()]
        if missing and not settings.download:
            raise TrainingError(
                f"{raw} lacks {', '.join(missing)}, and --no-download forbids fetching "
                f"{'them' if len(missing) > 1 else 'it'}: put the data set there, or leave --no-download out"
            )
        if missing:
            _download(settings, raw, place)
        check_files(raw)


def check_files(raw: Path) -> None:
    """Check the four idx files: torchvision looks only whether they exist.

    Raises:
        TrainingError: the first damaged one, by path, with what it has and what it should have.
    """
    counts = {}
    for name, magic in FILES.items():
        path = raw / name
        size = path.stat().st_size
        head = _head(path)
        dimensions = 3 if magic == IMAGES_MAGIC else 1
        header = 4 + 4 * dimensions
        if len(head) < header:
            raise TrainingError(f"{path} is cut off: {size} bytes, and the header alone has {header}")
        seen, *lengths = struct.unpack(f">{1 + dimensions}I", head[:header])
        if seen != magic:
            raise TrainingError(f"{path} is no idx file of this kind: its magic number is {seen}, not {magic}")
        if lengths[1:] not in ([], [SIDE, SIDE]):
            raise TrainingError(f"{path} holds images of {lengths[1]}x{lengths[2]}, not {SIDE}x{SIDE}")
        wanted = header + lengths[0] * (SIDE * SIDE if dimensions > 1 else 1)
        if size != wanted:
            raise TrainingError(f"{path} is {'cut off' if size < wanted else 'too long'}: {size} bytes, not {wanted}")
        counts[name] = lengths[0]
    for part in ("train", "t10k"):
        images, labels = counts[f"{part}-images-idx3-ubyte"], counts[f"{part}-labels-idx1-ubyte"]
        if images != labels or not images:
            raise TrainingError(f"{raw}: {images} {part} images, and {labels} labels")


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(16)


def _unpack(raw: Path) -> None:
    """Unpack what is there as .gz alone."""
    for name in FILES:
        packed, place = raw / f"{name}.gz", raw / name
        if packed.is_file() and not place.exists():
            new = raw / f".{name}.new"
            try:
                with gzip.open(packed) as source, new.open("wb") as target:
                    shutil.copyfileobj(source, target)
            except (OSError, EOFError) as error:
                new.unlink(missing_ok=True)
                raise TrainingError(f"{packed} cannot be unpacked: {error}") from error
            new.replace(place)


def _download(settings: Settings, raw: Path, place: Place) -> None:
    """Download into a folder beside, and move whole files: a download that was killed leaves nothing in the way."""
    print(f"rank {place.rank}: downloading {settings.dataset} into {raw}", flush=True)
    beside = settings.data_dir / ".download"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        SETS[settings.dataset](str(beside), download=True)
        raw.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (beside / SETS[settings.dataset].__name__ / "raw" / name).replace(raw / name)
    except (OSError, RuntimeError, EOFError) as error:
        words = str(error).strip().splitlines()
        raise TrainingError(
            f"{settings.dataset} cannot be downloaded ({words[0] if words else type(error).__name__}): "
            f"put its four files into {raw}; with ddp-orch: run --data FOLDER"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("w")
    except OSError as error:
        raise TrainingError(f"{folder} cannot be used for data: {error.strerror}") from error
    with stream:
        # A file system that knows no locks leaves us without: the worst is a download done twice.
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
