"""The worker's parts in this process: batches, data files, devices, models, checkpoints."""

from __future__ import annotations

import gzip
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import checkpoint
import process_group
from data import Images, batches_of, check_files, load_images, prepare_data
from model import build_model
from process_group import Place, TrainingError, choose_device
from settings import Settings, parse_settings
from train import evaluate
from worker_runs import write_idx

pytestmark = pytest.mark.torch


def place(rank: int = 0, world_size: int = 1) -> Place:
    return Place(rank, 0, world_size, torch.device("cpu"), grouped=False)


def settings(*words: str) -> Settings:
    return parse_settings(list(words))


def images(count: int) -> Images:
    return Images(torch.zeros(count, 28, 28, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64), (0.0, 1.0))


@pytest.mark.parametrize(("count", "world_size"), [(100, 1), (100, 3), (101, 4), (7, 2), (64, 2)])
def test_no_image_is_left_out_of_an_epoch_and_few_are_repeated(count: int, world_size: int) -> None:
    chosen = settings("--batch-size", "8")
    ranks = [batches_of(images(count), chosen, place(rank, world_size), epoch=5) for rank in range(world_size)]
    seen = Counter(index for batches in ranks for batch in batches for index in batch)
    assert set(seen) == set(range(count))
    assert sum(seen.values()) - count <= world_size - 1
    assert len({tuple(map(len, batches)) for batches in ranks}) == 1, "every rank takes the same steps"


def test_each_epoch_has_an_order_of_its_own_that_is_the_same_when_asked_again() -> None:
    chosen = settings("--batch-size", "8")
    first, again, next_one = (batches_of(images(50), chosen, place(), epoch) for epoch in (1, 1, 2))
    assert first == again
    assert first != next_one


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (3, 2), (4, 3)])
def test_an_epoch_that_goes_on_with_more_or_fewer_ranks_sees_each_image_once(before: int, after: int) -> None:
    chosen, count, done = settings("--batch-size", "8"), 240, 3
    first = [batches_of(images(count), chosen, place(rank, before), 2)[:done] for rank in range(before)]
    seen = done * 8 * before
    rest = [batches_of(images(count), chosen, place(rank, after), 2, seen) for rank in range(after)]
    used = [index for part in (first, rest) for rank in part for batch in rank for index in batch]
    assert set(used) == set(range(count))
    assert len(used) - count < after  # repeated so that every rank has as many
    assert len({tuple(map(len, batches)) for batches in rest}) == 1


def test_an_epoch_of_which_nothing_is_left_has_no_batches() -> None:
    assert batches_of(images(32), settings("--batch-size", "8"), place(), 0, seen=32) == []
    assert batches_of(images(33), settings("--batch-size", "8"), place(), 0, seen=32) == []


def test_a_last_batch_of_one_joins_the_one_before_it() -> None:
    assert [len(batch) for batch in batches_of(images(33), settings("--batch-size", "16"), place(), 0)] == [16, 17]
    assert [len(batch) for batch in batches_of(images(34), settings("--batch-size", "16"), place(), 0)] == [16, 16, 2]


def test_ranks_test_each_image_once() -> None:
    pixels = torch.arange(31, dtype=torch.uint8).view(31, 1, 1).expand(31, 28, 28).contiguous()
    seen: list[int] = []

    class Sees(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            seen.extend(int(value) for value in (batch[:, 0, 0, 0] * 255).round().tolist())
            return torch.zeros(len(batch), 10)

    for rank in range(4):
        evaluate(Sees(), Images(pixels, torch.zeros(31, dtype=torch.int64), (0.0, 1.0)), 4, place(rank, 4))
    assert sorted(seen) == list(range(31))


# --- data files ---


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_idx(tmp_path, 20, 10) / "MNIST" / "raw"


def test_whole_files_pass_and_are_read(raw: Path) -> None:
    check_files(raw)
    chosen = settings("--data-dir", str(raw.parents[1]), "--no-download")
    prepare_data(chosen, place())
    assert load_images(chosen, train=True).pixels.shape == (20, 28, 28)
    assert load_images(chosen, train=False).labels.tolist() == [number % 10 for number in range(10)]


def test_a_limit_takes_images_of_all_classes_from_a_sorted_file(tmp_path: Path) -> None:
    folder = write_idx(tmp_path, 200, 10)
    path = folder / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:8] + bytes(number // 20 for number in range(200)))
    chosen = load_images(settings("--data-dir", str(folder), "--limit-train", "60"), train=True)
    assert len(chosen) == 60
    assert len(set(chosen.labels.tolist())) == 10


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("train-images-idx3-ubyte", lambda data: data[:-1], "is cut off: 15695 bytes, not 15696"),
        ("t10k-labels-idx1-ubyte", lambda data: data + b"x", "t10k-labels-idx1-ubyte is too long: 19 bytes, not 18"),
        ("t10k-images-idx3-ubyte", lambda _data: b"\0\0\x08", "is cut off: 3 bytes, and the header alone has 16"),
        ("train-labels-idx1-ubyte", lambda data: b"<htm" + data[4:], "its magic number is 1013478509, not 2049"),
        (
            "train-images-idx3-ubyte",
            lambda data: data[:8] + struct.pack(">2I", 32, 32) + data[16:],
            "holds images of 32x32, not 28x28",
        ),
        ("t10k-labels-idx1-ubyte", lambda _data: struct.pack(">2I", 2049, 3) + b"123", "10 t10k images, and 3 labels"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_what_it_has_and_should_have(
    raw: Path, name: str, change: object, words: str
) -> None:
    assert callable(change)
    (raw / name).write_bytes(change((raw / name).read_bytes()))
    with pytest.raises(TrainingError) as caught:
        check_files(raw)
    assert words in str(caught.value)
    assert str(raw) in str(caught.value)


def test_packed_files_are_unpacked_and_a_damaged_one_is_named(raw: Path) -> None:
    chosen = settings("--data-dir", str(raw.parents[1]), "--no-download")
    plain = raw / "train-images-idx3-ubyte"
    packed = gzip.compress(plain.read_bytes())
    plain.unlink()
    plain.with_name(plain.name + ".gz").write_bytes(packed[:-20])
    with pytest.raises(TrainingError, match=r"train-images-idx3-ubyte\.gz cannot be unpacked"):
        prepare_data(chosen, place())
    assert not plain.exists()
    plain.with_name(plain.name + ".gz").write_bytes(packed)
    prepare_data(chosen, place())
    assert plain.is_file()


def test_missing_files_are_downloaded_whole_by_default_and_a_failure_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import data

    class Mirror:
        """Stands where torchvision's data set is: the network is not for tests."""

        __name__ = "MNIST"
        broken = False

        def __call__(self, root: str, *, download: bool) -> None:
            assert download
            if self.broken:
                (Path(root) / "MNIST" / "raw").mkdir(parents=True)
                raise RuntimeError("Error downloading train-images-idx3-ubyte.gz:\nTried a, b")
            write_idx(Path(root), 20, 10)

    mirror = Mirror()
    monkeypatch.setitem(data.SETS, "mnist", mirror)
    chosen = settings("--data-dir", str(tmp_path / "new"))
    mirror.broken = True
    with pytest.raises(TrainingError, match=r"cannot be downloaded \(Error downloading train-images-idx3-ubyte.gz:\)"):
        prepare_data(chosen, place())
    assert not list((tmp_path / "new").rglob("*ubyte*")), "nothing half done is in the way"
    mirror.broken = False
    prepare_data(chosen, place())
    check_files(tmp_path / "new" / "MNIST" / "raw")


# --- devices ---


def test_a_gpu_that_does_not_work_is_never_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(process_group, "_has_nvidia_gpu", lambda: True)
    for wanted in ("auto", "cuda"):
        with pytest.raises(TrainingError, match=r"this machine has an NVIDIA GPU, but torch .* cannot use CUDA here"):
            choose_device(wanted)
    assert choose_device("cpu") == "cpu"
    monkeypatch.setattr(process_group, "_has_nvidia_gpu", lambda: False)
    assert choose_device("auto") == "cpu"
    with pytest.raises(TrainingError, match="cannot use CUDA here"):
        choose_device("cuda")


def test_two_ranks_on_one_gpu_are_for_gloo_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    assert process_group._device("cuda", 1, "gloo") == torch.device("cuda", 0)
    assert "1 GPU is visible here, and local rank 1 has none: it shares GPU 0" in capsys.readouterr().out
    with pytest.raises(TrainingError, match="NCCL refuses two ranks on one GPU"):
        process_group._device("cuda", 1, "nccl")


# --- models ---


def test_resnet101_takes_one_channel_and_gives_ten_classes() -> None:
    net = build_model("resnet101", 0)
    conv = net.conv1
    assert isinstance(conv, torch.nn.Conv2d)
    assert (conv.in_channels, conv.kernel_size, conv.stride, conv.padding, conv.bias) == (
        1,
        (7, 7),
        (2, 2),
        (3, 3),
        None,
    )
    assert isinstance(net.fc, torch.nn.Linear)
    assert net.fc.out_features == 10


def test_a_seed_gives_the_same_weights_in_every_process() -> None:
    one, same, other = (build_model("mobilenet_v3_small", seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    assert not all(torch.equal(value, other[name]) for name, value in one.items())


def test_an_unknown_model_is_answered_with_those_that_are_near() -> None:
    with pytest.raises(TrainingError, match=r"torchvision has no classifier 'resnet102'; did you mean .*resnet101"):
        build_model("resnet102", 0)


def test_a_model_that_cannot_take_small_images_is_told_before_training() -> None:
    with pytest.raises(TrainingError, match="vit_b_16 cannot take a 28x28 image"):
        build_model("vit_b_16", 0)


# --- checkpoints ---


def test_a_full_disk_leaves_the_old_checkpoint_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step-00000001.pt"
    checkpoint.write_whole({"total_steps": 1}, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(TrainingError, match=r"step-00000001\.pt cannot be written: the disk is full"):
        checkpoint.write_whole({"total_steps": 2}, path)
    assert checkpoint._read(path) == {"total_steps": 1}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_defaults_are_those_of_the_article() -> None:
    plain = settings()
    assert plain == replace(plain, model="resnet101", dataset="mnist", batch_size=256, lr=1e-3, epochs=10, log_every=10)
