"""Receives folders, copies snapshots for runs, and sends output files back.

Sent as a node program it takes one message, below the account's own WORKDIR, and then what that needs:
    {"do": "receive", "workdir", "target": "code/ID" or "data/NAME", "manifest": [ENTRY, ...]}
        answers {"path", "missing": [INDEX, ...]}; takes {"index", "z", "last", "payload"} and bytes for each missing
        file, in pieces; then {"commit": true}; answers {"done": path}
    {"do": "copy", "workdir", "target": "code/ID", "run": RUN, "host": HOST}
        answers {"path"}: runs/RUN/HOST/work, a copy that the run may write to
    {"do": "list", "run_dir"}
        answers {"files": [[PATH, SIZE, SHA256], ...]}: what the run made or changed
    {"do": "send", "run_dir", "paths": [...]}
        answers {"path", "z", "payload"} and bytes for each, in pieces; {"path", "sha256"} after each
    {"do": "manifest", "run_dir"}  answers {"manifest": {...}}: what was started, {} where it does not say
An ENTRY is [PATH, KIND, MODE, SIZE, SHA256 or TARGET], KIND one of "file", "link", "dir".
A snapshot (code/) is made under another name, made read-only, and renamed: it is whole, or not there. A data folder is
filled file by file, and nothing in it is removed. Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
import zlib
from typing import Any, Tuple

from orchestrator.node.parts import remove_tree
from orchestrator.node.whole_files import read_json, sync_file_system, write_whole

PIECE_BYTES = 1 << 18
FICLONE = 0x40049409  # <linux/fs.h>: share the blocks where the file system can
STALE_S = 3600.0  # a half-received snapshot of a sync that was killed
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}")
Entry = Tuple[str, str, int, int, str]


class Refused(Exception):
    """What was asked cannot be done; the text says why."""


def send(body: dict[str, Any], payload: bytes = b"") -> None:
    """Send one message."""
    if payload:
        body = dict(body, payload=len(payload))
    sys.stdout.buffer.write(json.dumps(body).encode() + b"\n" + payload)
    sys.stdout.buffer.flush()


def receive() -> tuple[dict[str, Any], bytes]:
    """Return the next message and its bytes.

    Raises:
        Refused: the other side is gone in the middle.
    """
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        raise Refused("the connection broke off")
    body = json.loads(line)
    payload = sys.stdin.buffer.read(int(body.get("payload", 0)))
    return body, payload


def below(root: str, *names: str) -> str:
    """Join names that must be plain: nothing of ours is written outside the workdir."""
    for name in names:
        if not NAME.fullmatch(name):
            raise Refused("%r is no name for a folder here" % name)
    return os.path.join(root, *names)


def make_private(path: str, *, new: bool = False) -> None:
    """Make a folder, and those above it that are missing, for this account alone."""
    before = os.umask(0o077)  # makedirs gives its mode to the last one only
    try:
        os.makedirs(path, exist_ok=not new)
    finally:
        os.umask(before)


def checked(manifest: list[Any]) -> list[Entry]:
    """Return a manifest that cannot lead outside its target.

    Raises:
        Refused: a path is absolute, climbs, appears twice, or goes through something that is no folder.
    """
    entries: list[Entry] = []
    kinds: dict[str, str] = {}
    for path, kind, mode, size, detail in manifest:
        parts = path.split("/")
        if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
            raise Refused("a path that leads elsewhere: %r" % path)
        if kind not in ("file", "link", "dir") or path in kinds:
            raise Refused("an entry that is none, or that came twice: %r" % path)
        kinds[path] = kind
        entries.append((path, kind, int(mode) & 0o755, int(size), str(detail)))
    for path in kinds:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if kinds.get(above, "dir") != "dir":
                raise Refused("%r goes through %r, which is no folder" % (path, above))
    return entries


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def is_whole(path: str, kind: str, size: int, detail: str) -> bool:
    """Tell whether what lies at `path` is the entry."""
    try:
        found = os.lstat(path)
        if kind == "link":
            return stat.S_ISLNK(found.st_mode) and os.readlink(path) == detail
        if kind == "dir":
            return stat.S_ISDIR(found.st_mode)
        return stat.S_ISREG(found.st_mode) and found.st_size == size and digest_of(path) == detail
    except OSError:
        return False


class Receiver:
    """One folder on its way in."""

    def __init__(self, workdir: str, target: str, entries: list[Entry]) -> None:
        kind, _, name = target.partition("/")
        self.is_code = kind == "code"
        if kind not in ("code", "data"):
            raise Refused("%r is no place to write to" % target)
        self.entries = entries
        self.path = below(workdir, kind, name)
        make_private(os.path.dirname(self.path))
        # Snapshots are built beside their place; data is filled in its place.
        self.work = self.path
        # What a data folder held after the last sync: large files are not read again while size and time stand.
        self.seen_path = os.path.join(os.path.dirname(self.path), "." + name + ".seen")
        self.seen = {} if self.is_code else read_json(self.seen_path)
        if self.is_code:
            self._sweep()
            self.work = os.path.join(os.path.dirname(self.path), ".incoming-" + secrets.token_hex(6))

    def missing(self) -> list[int]:
        """Return the files that have to be sent; those that lie in an older snapshot are taken from there."""
        if self.is_code and os.path.isdir(self.path):
            if all(is_whole(os.path.join(self.path, entry[0]), entry[1], *entry[3:]) for entry in self.entries):
                os.utime(self.path)  # `gc` removes what nobody has used for an hour
                return []
            remove_tree(self.path)  # somebody wrote into it
        known = self._older_files() if self.is_code else {}
        wanted = []
        make_private(self.work)
        for index, entry in enumerate(self.entries):
            path = os.path.join(self.work, entry[0])
            if self._was_seen(path, entry) or is_whole(path, entry[1], *entry[3:]):
                continue
            if entry[1] == "dir":
                os.makedirs(path, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if entry[1] == "link":
                if os.path.lexists(path):
                    os.unlink(path)
                os.symlink(entry[4], path)
            elif entry[4] in known and is_whole(known[entry[4]], "file", entry[3], entry[4]):
                shutil.copyfile(known[entry[4]], path)
            else:
                wanted.append(index)
        need, free = sum(self.entries[index][3] for index in wanted), shutil.disk_usage(self.work).free
        if need > free:
            self.abandon()
            raise Refused("the disk has %d MiB free, and %d MiB are needed" % (free >> 20, need >> 20))
        return wanted

    def take(self, index: int, data: bytes) -> None:
        """Write one piece of a file, to a temporary name."""
        with open(os.path.join(self.work, self.entries[index][0]) + ".new", "ab") as stream:
            stream.write(data)

    def finish_file(self, index: int) -> None:
        """Check a file that is whole now, and give it its name.

        Raises:
            Refused: it is not what the manifest says.
        """
        path, _, mode, size, digest = self.entries[index]
        new = os.path.join(self.work, path) + ".new"
        if not size:
            open(new, "ab").close()
        if digest_of(new) != digest:
            raise Refused("%s changed while it was being sent" % path)
        os.chmod(new, mode | 0o600)
        os.replace(new, os.path.join(self.work, path))

    def commit(self) -> None:
        """Put a snapshot in its place, read-only and on the disk."""
        if not self.is_code:
            self._write_seen()
            return
        if os.path.isdir(self.path):
            remove_tree(self.work)  # it was there, or another sync was faster
            return
        for path, kind, mode, _, _ in self.entries:
            if kind == "file":
                full = os.path.join(self.work, path)
                os.chmod(full, 0o555 if mode & 0o100 else 0o444)
                with open(full, "rb") as stream:
                    os.fsync(stream.fileno())
        for folder, _, _ in os.walk(self.work, topdown=False):
            if folder != self.work:
                os.chmod(folder, 0o555)
        try:
            os.rename(self.work, self.path)
        except OSError:
            if not os.path.isdir(self.path):
                raise
            remove_tree(self.work)
            return
        os.utime(self.path)  # it may have been on its way for long
        os.chmod(self.path, 0o555)  # last: a folder that cannot be written cannot be renamed by an ordinary user

    def abandon(self) -> None:
        """Leave nothing half done."""
        if self.is_code:
            remove_tree(self.work)

    def _was_seen(self, path: str, entry: Entry) -> bool:
        """Tell whether a data file is as the last sync left it."""
        try:
            found = os.lstat(path)
        except OSError:
            return False
        return self.seen.get(entry[0]) == [found.st_size, found.st_mtime_ns, entry[4]]

    def _write_seen(self) -> None:
        seen = {}
        for path, kind, _, _, digest in self.entries:
            if kind == "file":
                found = os.lstat(os.path.join(self.path, path))
                seen[path] = [found.st_size, found.st_mtime_ns, digest]
        sync_file_system(self.path)  # what is noted here is not read again: it must outlive a power cut
        write_whole(self.seen_path, seen)

    def _older_files(self) -> dict[str, str]:
        """Return digest -> path over the newest snapshots, by the index that each one has beside it."""
        found: dict[str, str] = {}
        folder = os.path.dirname(self.path)
        indexes = [name for name in os.listdir(folder) if name.endswith(".index")]
        for name in sorted(indexes, key=lambda name: os.path.getmtime(os.path.join(folder, name)))[-3:]:
            try:
                with open(os.path.join(folder, name)) as stream:
                    entries = json.load(stream)
            except (OSError, ValueError):
                continue
            for path, kind, _, _, digest in entries:
                if kind == "file":
                    found[digest] = os.path.join(folder, name[: -len(".index")], path)
        return found

    def _sweep(self) -> None:
        folder = os.path.dirname(self.path)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.startswith(".incoming-") and time.time() - os.lstat(path).st_mtime > STALE_S:
                remove_tree(path)


def receive_folder(order: dict[str, Any], workdir: str) -> None:
    """Take a folder in."""
    receiver = Receiver(workdir, order["target"], checked(order["manifest"]))
    wanted = receiver.missing()
    send({"path": receiver.path, "missing": wanted})
    try:
        while True:
            message, data = receive()
            if "commit" in message:
                break
            index = int(message["index"])
            if index not in wanted:
                raise Refused("a file that was not asked for")
            receiver.take(index, zlib.decompress(data) if message.get("z") else data)
            if message.get("last"):
                receiver.finish_file(index)
        receiver.commit()
        if receiver.is_code:
            write_whole(receiver.path + ".index", receiver.entries)
    except BaseException:
        receiver.abandon()
        raise
    send({"done": receiver.path})


def copy_file(source: str, target: str) -> None:
    """Copy a file, sharing its blocks where the file system can; never a hard link."""
    with open(source, "rb") as read, open(target, "wb") as write:
        try:
            fcntl.ioctl(write.fileno(), FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, write, 1 << 20)
    os.chmod(target, stat.S_IMODE(os.stat(source).st_mode) | 0o600)


def copy_for_run(order: dict[str, Any], workdir: str) -> None:
    """Make a run's working directory from a snapshot, and answer its path."""
    source = below(workdir, *order["target"].split("/"))
    run_dir = below(workdir, "runs", order["run"], order["host"])
    target = os.path.join(run_dir, "work")
    os.utime(source)
    make_private(target, new=True)
    for folder, folders, files in os.walk(source):
        to = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                os.symlink(os.readlink(path), os.path.join(to, name))
            elif name in folders:
                os.mkdir(os.path.join(to, name), 0o755)
            else:
                copy_file(path, os.path.join(to, name))
    with open(source + ".index") as stream:
        write_whole(os.path.join(run_dir, "snapshot.json"), json.load(stream))
    send({"path": target})


def list_outputs(order: dict[str, Any]) -> None:
    """Answer with the files of a run that are not as the snapshot had them."""
    run_dir = order["run_dir"]
    work = os.path.join(run_dir, "work")
    with open(os.path.join(run_dir, "snapshot.json")) as stream:
        before = {entry[0]: entry[4] for entry in json.load(stream)}
    found = []
    for folder, _, files in os.walk(work):
        for name in files:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, work)
            if stat.S_ISREG(os.lstat(path).st_mode) and "__pycache__" not in relative.split("/"):
                digest = digest_of(path)
                if before.get(relative) != digest:
                    found.append([relative, os.path.getsize(path), digest])
    send({"files": sorted(found)})


def send_files(order: dict[str, Any]) -> None:
    """Send files of a run's working directory."""
    work = os.path.realpath(os.path.join(order["run_dir"], "work"))
    for path in order["paths"]:
        full = os.path.realpath(os.path.join(work, path))
        if not full.startswith(work + os.sep):
            raise Refused("%r is not below the run's folder" % path)
        digest = hashlib.sha256()
        worth = True  # until a piece does not shrink: weights never do, and trying costs more than sending
        with open(full, "rb") as stream:
            for piece in iter(lambda: stream.read(PIECE_BYTES), b""):
                digest.update(piece)
                packed = zlib.compress(piece, 1) if worth else piece
                worth = worth and len(packed) < len(piece) * 0.9
                send({"path": path, "z": worth}, packed if worth else piece)
        send({"path": path, "sha256": digest.hexdigest()})


def main() -> None:
    """Do the one thing asked."""
    os.umask(0o022)
    order, _ = receive()
    workdir = os.path.expanduser(order.get("workdir", ""))
    try:
        if workdir:
            make_private(workdir)
        if order["do"] == "receive":
            receive_folder(order, workdir)
        elif order["do"] == "copy":
            copy_for_run(order, workdir)
        elif order["do"] == "list":
            list_outputs(order)
        elif order["do"] == "manifest":
            send({"manifest": read_json(os.path.join(order["run_dir"], "manifest.json"))})
        else:
            send_files(order)
    except Refused as error:
        send({"error": str(error)})
    except OSError as error:
        send({"error": "%s: %s" % (error.filename or "the workdir", error.strerror)})


if __name__ == "__main__":
    main()
