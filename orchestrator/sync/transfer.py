"""Make a host's folder equal to a manifest, make a run's copy of one, and bring output files back."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SyncFailed
from orchestrator.transport.node_program import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.sync.manifest import Manifest
    from orchestrator.transport.link import Link

PIECE_BYTES = 1 << 18
ANSWER_S = 600.0  # a host may hash many gigabytes before it knows what it lacks
WORTH_PACKING = 0.9  # what does not shrink to this goes as it is


def send_folder(link: Link, manifest: Manifest, target: str, on_bytes: Callable[[int, int], None]) -> tuple[str, int]:
    """Bring a folder to a host; only files that it lacks are sent.

    Args:
        link: an open way to the host.
        manifest: the folder's content.
        target: `code/ID` (a read-only snapshot) or `data/NAME`, below the host's workdir.
        on_bytes: called with bytes done and bytes in all, as files go out.
    Returns:
        the absolute path on the host, and how many bytes of content were sent.
    Raises:
        SyncFailed: the host refuses (no room, no permission), or a file changed on the way.
    """
    with Conversation(link, "files") as talk:
        order = {"do": "receive", "workdir": link.host.workdir, "target": target}
        talk.send({**order, "manifest": [entry.to_json() for entry in manifest.entries]})
        offer = _answer(talk, link)
        missing = [int(index) for index in offer["missing"]]
        total, done = sum(manifest.entries[index].size for index in missing), 0
        for index in missing:
            path = manifest.root / manifest.entries[index].path
            worth = True  # until a piece does not shrink: trying costs more than sending
            for piece, last in _pieces(path):
                packed = zlib.compress(piece, 1) if worth else piece
                worth = worth and len(packed) < len(piece) * WORTH_PACKING
                talk.send({"index": index, "z": worth, "last": last}, packed if worth else piece)
                done += len(piece)
                on_bytes(done, total)
        talk.send({"commit": True})
        return str(_answer(talk, link)["done"]), done


def copy_for_run(link: Link, snapshot: str, run: str) -> str:
    """Give a run its own copy of a snapshot, and return the copy's absolute path on the host.

    Raises:
        SyncFailed: it cannot be made.
    """
    order = {"do": "copy", "workdir": link.host.workdir, "target": f"code/{snapshot}", "run": run}
    with Conversation(link, "files") as talk:
        talk.send({**order, "host": folder_name(link.host.name)})
        return str(_answer(talk, link)["path"])


def folder_name(host: str) -> str:
    """Return a host's name as a folder's name; inventories allow nothing else but this one character."""
    return host.replace(":", "-").lstrip(".-")


@dataclass(frozen=True)
class Output:
    """A file that a run made or changed on a host: its path in the working directory, bytes, and SHA-256 in hex."""

    path: str
    size_bytes: int
    digest: str


def list_outputs(link: Link, run_dir: str) -> list[Output]:
    """Return what a run made or changed on a host.

    Raises:
        SyncFailed: the host has no such run.
    """
    with Conversation(link, "files") as talk:
        talk.send({"do": "list", "run_dir": run_dir})
        return [Output(str(path), int(size), str(digest)) for path, size, digest in _answer(talk, link)["files"]]


def fetch_files(link: Link, run_dir: str, places: Mapping[str, Path], on_bytes: Callable[[int], None]) -> None:
    """Bring files of a run to this machine; each appears whole, or not at all.

    Args:
        link: an open way to the host.
        run_dir: the run's folder there.
        places: path in the run's working directory -> where it goes here.
        on_bytes: called with the bytes so far.
    Raises:
        SyncFailed: a file could not be read there, or written here.
    """
    done = 0
    with Conversation(link, "files") as talk:
        talk.send({"do": "send", "run_dir": run_dir, "paths": list(places)})
        for path, place in places.items():
            try:
                done = _take_file(talk, link, path, place, done=done, on_bytes=on_bytes)
            except OSError as error:
                raise SyncFailed(f"{place} cannot be written: {error.strerror}") from error


def _take_file(
    talk: Conversation, link: Link, path: str, place: Path, *, done: int, on_bytes: Callable[[int], None]
) -> int:  # fmt: skip
    digest = hashlib.sha256()
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_name(f".{place.name}.new")
    try:
        with new.open("wb") as stream:
            while True:
                message = talk.receive(ANSWER_S)
                if message is None or "error" in message.body or message.body.get("path") != path:
                    raise _refusal(link, message.body if message else {"error": "it ended early"})
                if "sha256" in message.body:
                    break
                piece = zlib.decompress(message.payload) if message.body.get("z") else message.payload
                stream.write(piece)
                digest.update(piece)
                done += len(piece)
                on_bytes(done)
        if digest.hexdigest() != message.body["sha256"]:
            raise SyncFailed(f"{path} arrived damaged", host=link.host.name, try_this="fetch it again")
        new.replace(place)
    finally:
        new.unlink(missing_ok=True)
    return done


def _answer(talk: Conversation, link: Link) -> Mapping[str, Any]:
    body = talk.expect(timeout_s=ANSWER_S)
    if "error" in body:
        raise _refusal(link, body)
    return body


def _refusal(link: Link, body: Mapping[str, Any]) -> SyncFailed:
    return SyncFailed(
        str(body.get("error", "it sent something else")), host=link.host.name, try_this="df -h; ls -ld, there"
    )


def _pieces(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield a file in pieces, each with whether it is the last; an empty file is one empty piece."""
    with path.open("rb") as stream:
        piece = stream.read(PIECE_BYTES)
        while True:
            following = stream.read(PIECE_BYTES)
            yield piece, not following
            if not following:
                return
            piece = following


def harmless(path: str) -> bool:
    """Tell whether a path that a host named stays below the folder it is written to, and can be shown."""
    parts = path.split("/")
    return path.isprintable() and not path.startswith("/") and not any(part in ("", ".", "..") for part in parts)
