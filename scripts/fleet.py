#!/usr/bin/env python3
"""Runs jitinject on the profiles of many machines.

    profiles ──► one Dask task each: fetch, jitinject, publish ──► profiles with names  (--output)
                                              │               ──► one row each          (--table)
                                              └─────────────────► objects, by build ID  (--store)

Profiles are independent, and objects are named by content. Any number of workers can fill one build-id store.
A lost task can be repeated anywhere, with the same result.
"""

import argparse
import contextlib
import errno
import fcntl
import fnmatch
import hashlib
import math
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from json import loads
from pathlib import Path, PurePosixPath
from typing import BinaryIO, get_args, get_type_hints

import dask
import fsspec
import pyarrow
import pyarrow.parquet
from distributed import Client, LocalCluster, as_completed, get_worker
from fsspec.implementations.local import LocalFileSystem

DONE, FAILED, USAGE = 0, 1, 2

# File names of profiles in searched folders. A profile that is a folder contains a file `data`.
PROFILES = ["perf.data", "*.perf.data", "perf.pipe"]
# Files of runtimes next to a profile. LLVM and perf's agent for Java use the folder below.
BESIDE = ["jit-*.dump", "perf-*.map", "*.mlpd"]
DUMPS_BELOW = ".debug/jit"
# Where `jitinject record` collects the files of runtimes.
DUMPS_OF_RECORD = "dumps"
# Files of a profile that is a folder.
PARTS = ["data", "data.*", "kcore_dir*/*"]

# Temporary names of files that are being published.
PART = re.compile(r"\.(.+)\.[0-9a-f]{32}\.part")

# Limit for fetched files per profile, more than any profile needs. Others can write to the storage.
MAX_FETCHED = 10_000
# Bytes per read.
BLOCK = 4 << 20
# Errors of creating a file if its name is invalid for a local file, or already in use.
NAME_ERRORS = {errno.EEXIST, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR}
# Skipped files listed per profile.
MAX_NAMED = 20
# Limit for jitinject's error output in the table; the first lines contain the cause.
MAX_ERROR_BYTES = 4096
# Limit for the hostname section of a profile; Linux allows 64 bytes for the name.
MAX_HOSTNAME_BYTES = 260
# Time for jitinject to remove unfinished files before it is killed.
GRACE_SECONDS = 10
# Reports a skipped profile or file: its address and the reason.
Skip = Callable[[str, str], None]

# Exit statuses of jitinject with complete output. 3: too few samples have names for --fail-under.
STATUS = {0: "done", 3: "fewer-named"}


@dataclass(frozen=True)
class Place:
    """A file or folder of any file system that fsspec supports."""

    fs: fsspec.AbstractFileSystem
    path: str
    url: str

    @classmethod
    def parse(cls, url: str) -> "Place":
        fs, path = fsspec.core.url_to_fs(url)
        return cls(fs, path, path if isinstance(fs, LocalFileSystem) else url)

    @property
    def is_local(self) -> bool:
        return isinstance(self.fs, LocalFileSystem)

    def at(self, path: str) -> "Place":
        """Another place in the same file system, with an address derived from this one."""
        if self.is_local:
            return Place(self.fs, path, path)
        first, *chain = self.url.split("::")
        first = first if first.endswith("://") else first.rstrip("/")
        own = self.path.rstrip("/")
        url = first.removesuffix(own) + path if first.endswith(own) else self.fs.unstrip_protocol(path)
        return Place(self.fs, path, "::".join([url, *chain]))

    def joined(self, name: str) -> "Place":
        return self.at(f"{self.path.rstrip('/')}/{name}")


@dataclass(frozen=True)
class Profile:
    """One profile, and the name of everything derived from it."""

    place: Place
    is_folder: bool

    @property
    def name(self) -> str:
        """Derived from the address alone: its end, for readability, and a hash of all of it, for uniqueness."""
        words = PurePosixPath(self.place.path).parts[-2:]
        shown = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(words)).strip("_.-")[-80:].lstrip("_.-")
        unique = hashlib.sha256(as_bytes(self.place.url)).hexdigest()[:16]
        return f"{shown or 'profile'}-{unique}"


def as_bytes(url: str) -> bytes:
    """Different bytes for different addresses: names in storage can contain surrogates that local names cannot."""
    try:
        return url.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return b"\0" + url.encode(errors="surrogatepass")


@dataclass(frozen=True)
class Settings:
    """Settings common to all profiles of a run."""

    run: str
    jitinject: str
    arguments: tuple[str, ...]
    output: Place
    store: Path | None
    scratch: Path
    timeout: float
    max_bytes: int


@dataclass(frozen=True)
class Row:
    """A row of the table. The fields are its columns, in this order."""

    input: str
    output: str | None = None
    host: str | None = None
    status: str = "failed"
    exit_code: int | None = None
    error: str | None = None
    attempts: int = 0
    seconds: float | None = None
    worker: str | None = None
    samples: int | None = None
    samples_jit: int | None = None
    samples_named: int | None = None
    named_percent: float | None = None
    functions_loaded: int | None = None
    functions_touched: int | None = None
    functions_written: int | None = None
    warnings: int | None = None
    skipped: str | None = None
    summary: str | None = None

    def with_summary(self, text: str) -> "Row":
        summary = loads(text)
        samples, functions = summary["samples"], summary["functions"]
        return replace(
            self,
            samples=samples["total"],
            samples_jit=samples["jit"],
            samples_named=samples["named"],
            named_percent=samples["named_percent"],
            functions_loaded=functions["loaded"],
            functions_touched=functions["touched"],
            functions_written=functions["written"],
            warnings=sum(it["count"] for it in summary["diagnostics"] if it["severity"] == "warning"),
            summary=text,
        )


def schema() -> pyarrow.Schema:
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    columns = []
    for name, kind in get_type_hints(Row).items():
        [known] = {kind, *get_args(kind)} & types.keys()
        columns.append(pyarrow.field(name, types[known], nullable=known is not kind))
    return pyarrow.schema(columns)


# Finding profiles


def find_profiles(url: str, skip: Skip = lambda url, reason: None) -> list[Profile]:
    """The profiles at an address: one, all in a folder and below, or all that match a pattern."""
    place = Place.parse(url)
    has_pattern = any(sign in place.path for sign in "*?[")
    if has_pattern and not place.fs.exists(place.path):
        found = [profile for at in matching(place, skip) for profile in profiles_at(at, skip)]
    else:
        found = profiles_at(place, skip)
    if not found:
        raise FileNotFoundError("no profile found")
    return found


def matching(pattern: Place, skip: Skip) -> Iterator[Place]:
    for path, entry in sorted(pattern.fs.glob(pattern.path, detail=True).items()):
        if reason := irregular(entry):
            skip(pattern.at(path).url, reason)
        else:
            yield pattern.at(path)


def profiles_at(place: Place, skip: Skip) -> list[Profile]:
    """The named file, whatever its name, or the profiles in a folder. Others may have written to the folder."""
    if not place.fs.isdir(place.path):
        if not place.fs.lexists(place.path):
            return []
        if reason := irregular(place.fs.info(place.path)):
            raise ValueError(reason)
        return [Profile(place, is_folder=False)]
    if place.fs.isfile(f"{place.path.rstrip('/')}/data"):
        return [Profile(place, is_folder=True)]
    found = []
    entries = local_entries(place.path, skip) if place.is_local else place.fs.find(place.path, detail=True)
    for name, entry in sorted(entries.items()):
        profile = profile_of(place, PurePosixPath(name))
        reason = irregular(entry)
        if reason and (profile or is_link(entry) and place.fs.isdir(name)):
            skip(place.at(name).url, reason)
        elif profile:
            found.append(profile)
    return found


def local_entries(folder: str, skip: Skip) -> dict[str, dict]:
    """All files in a folder and below. Unreadable folders are skipped; fsspec would omit them silently."""
    fs, found, left = LocalFileSystem(), {}, [folder]
    while left:
        folder = left.pop()
        try:
            entries = fs.ls(folder, detail=True)
        except OSError as error:
            skip(folder, f"cannot be searched: {error.strerror}")
            continue
        left += [entry["name"] for entry in entries if entry["type"] == "directory"]
        found |= {entry["name"]: entry for entry in entries if entry["type"] != "directory"}
    return found


def profile_of(folder: Place, path: PurePosixPath) -> Profile | None:
    """The profile of a file found in a folder, by its name; for `data`, the folder that contains it."""
    if path.name == "data" and matches(path.parent.name, PROFILES):
        return Profile(folder.at(str(path.parent)), is_folder=True)
    if matches(path.name, PROFILES):
        return Profile(folder.at(str(path)), is_folder=False)
    return None


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def is_link(entry: dict) -> bool:
    return bool(entry.get("islink")) or entry.get("type") == "link"


def irregular(entry: dict) -> str | None:
    """Why an entry is not opened: reading a FIFO or device may never end, and a link may lead to files of others."""
    if is_link(entry):
        return "is a symbolic link"
    return None if entry.get("type", "file") in ("file", "directory") else "is not a regular file"


# Fetching them


def more_arguments(profile: Path, skip: Skip) -> list[str]:
    """Options for files next to a local profile that jitinject does not find itself. Skips irregular files.

    jitinject trusts files named with options, whoever owns them, so their owner is checked here. jitinject
    checks the files in a named folder itself.
    """
    more = []
    owners = {0, os.geteuid(), profile.stat().st_uid}
    fs, folder = LocalFileSystem(), str(profile.parent)
    for entry in beside(fs, folder, skip):
        if reason := irregular(entry):
            skip(entry["name"], reason)
        elif entry["name"].endswith(".mlpd"):
            if entry["uid"] in owners:
                more += ["--mono-log", entry["name"]]
            else:
                skip(entry["name"], f"belongs to user {entry['uid']}")
    if has_dumps_below(fs, folder):
        more = ["--jitdump", f"{folder}/{DUMPS_BELOW}", *more]
    return more


class Unusable(Exception):
    """A profile that is unusable in any attempt."""


class TimeIsUp(Exception):
    """A profile that exceeds the time limit in any attempt."""


@dataclass
class Room:
    """Remaining bytes, files and time to fetch a profile."""

    bytes: int
    files: int = MAX_FETCHED
    deadline: float = math.inf


def fetch(profile: Profile, scratch: Path, room: Room, skip: Skip) -> Path:
    """Copies a profile and its files, and nothing else from the folder.

    Others can write to the storage. A file is skipped if its name is invalid here, or if it exceeds the remaining room.
    """
    fs, path = profile.place.fs, profile.place.path
    parent, _, name = path.rstrip("/").rpartition("/")
    inside = safe_path(parent, path)
    if inside is None:
        raise Unusable(f"the name of the profile can't be used: {name!r}")

    def fail(source: str, reason: str) -> None:
        raise Unusable(f"{source} {reason}")

    for entry in files_of(profile):
        fetch_file(fs, parent, entry, scratch, room, fail)
    left_out = 0
    for entry in beside(fs, parent, skip):
        if room.files == 0:
            left_out += 1
        else:
            fetch_file(fs, parent, entry, scratch, room, skip)
    if left_out:
        skip(parent, f"has {counted(left_out, 'more file')} than the {MAX_FETCHED} that are fetched for a profile")
    return scratch / inside


def fetch_file(
    fs: fsspec.AbstractFileSystem, parent: str, entry: dict, scratch: Path, room: Room, skip: Skip
) -> None:
    """Copies a file to the same path below the scratch folder. Counts the bytes read, not the size in the entry."""
    source = entry["name"]
    if reason := irregular(entry):
        return skip(source, reason)
    if room.files == 0:
        return skip(source, f"is one of more than {MAX_FETCHED} files")
    if (entry.get("size") or 0) > room.bytes:
        return skip(source, too_large(room.bytes))
    local = new_file(scratch, safe_path(parent, source))
    if local is None:
        return skip(source, "has a name that no local file can have")
    room.files -= 1
    with local, fs.open(source, "rb") as original:
        copied = 0
        while block := original.read(min(BLOCK, room.bytes - copied + 1)):
            if time.monotonic() > room.deadline:
                raise TimeIsUp
            copied += len(block)
            if copied > room.bytes:
                os.unlink(local.name)
                return skip(source, too_large(room.bytes))
            local.write(block)
    room.bytes -= copied


def too_large(left: int) -> str:
    return f"is too large: {counted(left, 'byte')} of what is fetched for a profile are left (--max-bytes)"


def new_file(scratch: Path, inside: PurePosixPath | None) -> BinaryIO | None:
    """A new file; None if no file can have the name."""
    if inside is None:
        return None
    path = scratch / inside
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    # The name has no encoding, such as a lone surrogate.
    except ValueError:
        return None
    except OSError as error:
        if error.errno in NAME_ERRORS:
            return None
        raise


def files_of(profile: Profile) -> Iterable[dict]:
    fs, path = profile.place.fs, profile.place.path
    return parts(fs, path) if profile.is_folder else [fs.info(path)]


def parts(fs: fsspec.AbstractFileSystem, folder: str) -> Iterator[dict]:
    for path, entry in sorted(fs.find(folder, maxdepth=2, detail=True).items()):
        inside = safe_path(folder, path)
        if inside and any(inside.match(part) and len(inside.parts) == part.count("/") + 1 for part in PARTS):
            yield entry


def beside(fs: fsspec.AbstractFileSystem, folder: str, skip: Skip) -> Iterator[dict]:
    """Entries in a folder, of any type, with the name of a file of a runtime."""
    entries = [entry for entry in fs.ls(folder, detail=True) if entry["type"] != "directory"]
    for name in (DUMPS_BELOW, DUMPS_OF_RECORD):
        below = f"{folder}/{name}"
        if has_dumps_below(fs, folder, name):
            entries += fs.find(below, maxdepth=2, detail=True).values()
        elif fs.isdir(below):
            skip(below, "is reached by a symbolic link")
    for entry in sorted(entries, key=lambda entry: entry["name"]):
        if matches(PurePosixPath(entry["name"]).name, BESIDE):
            yield entry


def has_dumps_below(fs: fsspec.AbstractFileSystem, folder: str, name: str = DUMPS_BELOW) -> bool:
    """Whether a folder of dumps exists, without a link on the path to it."""
    ways = [f"{folder}/{part}" for part in (name.partition("/")[0], name)]
    return fs.isdir(ways[-1]) and not any(is_link(fs.info(way)) for way in ways)


def safe_path(folder: str, path: str) -> PurePosixPath | None:
    """A path relative to a folder; None if it is outside. Names come from anyone who can write to the storage."""
    folder, path = folder.strip("/"), path.strip("/")
    if folder:
        if not path.startswith(folder + "/"):
            return None
        path = path[len(folder) + 1 :]
    names = path.split("/")
    return None if any(name in ("", ".", "..") or "\0" in name for name in names) else PurePosixPath(path)


# The task


def process(profile: Profile, settings: Settings) -> dict[str, object]:
    """Processes a profile, on a worker.

    Exceptions cause another attempt. A failure of jitinject on a profile is a normal result.
    """
    worker = get_worker()
    worker.log_event(settings.run, {"profile": profile.name})
    start = time.monotonic()
    with claimed(scratch_of(profile, settings), settings.timeout) as (folder, claim):
        row = inject(profile, settings, folder, claim)
    return asdict(replace(row, worker=worker.address, seconds=time.monotonic() - start))


def scratch_of(profile: Profile, settings: Settings) -> Path:
    """The same on every machine: the profile contains the paths that its objects had when it was written."""
    return settings.scratch / profile.name


@contextlib.contextmanager
def claimed(folder: Path, patience: float) -> Iterator[tuple[Path, int]]:
    """An empty private folder, which is removed at the end.

    It may already exist, left by a killed worker. It may be in use if only the worker was killed and its jitinject
    continues. Therefore jitinject shares the lock, which ends with its last holder.
    """
    own_folder(folder.parent)
    deadline = time.monotonic() + patience
    while (claim := try_claim(folder)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder} is still used by another attempt")
        time.sleep(0.1)
    try:
        empty(folder)
        yield folder, claim
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(claim)


def own_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be changed by others; choose another with --scratch")


def try_claim(folder: Path) -> int | None:
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        claim = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the folder.
        if os.path.samestat(os.fstat(claim), folder.lstat()):
            return claim
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(claim)
    return None


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def inject(profile: Profile, settings: Settings, folder: Path, claim: int) -> Row:
    room = Room(settings.max_bytes, deadline=time.monotonic() + settings.timeout)
    skipped: list[str] = []

    def skip(path: str, reason: str) -> None:
        skipped.append(printable(f"{path} {reason}"))

    try:
        row = inject_in_time(profile, settings, folder, claim, room, skip)
    except Unusable as error:
        row = Row(input=profile.place.url, error=str(error))
    except TimeIsUp:
        row = Row(input=profile.place.url, status="timeout", error=f"not done after {settings.timeout:g} s")
    if len(skipped) > MAX_NAMED:
        skipped[MAX_NAMED:] = [f"and {len(skipped) - MAX_NAMED} more"]
    return replace(row, skipped="\n".join(skipped) or None)


def inject_in_time(
    profile: Profile, settings: Settings, folder: Path, claim: int, room: Room, skip: Skip
) -> Row:
    source = profile_file(profile, folder / "input", room, skip)
    output, summary, errors = folder / "perf.jit.data", folder / "summary.json", folder / "errors"
    command = [settings.jitinject, "-q", "-i", str(source), "-o", str(output), "--summary", str(summary)]
    # The paths in a profile could name any file of this machine.
    command += ["--confine", *more_arguments(source, skip)]
    if settings.store:
        command += ["--build-id-cache", str(settings.store)]
    command += settings.arguments
    try:
        code = run(command, errors, claim, room.deadline)
    finally:
        sweep_store(profile, settings)
    error = None if code == 0 else error_output(errors) or f"ended with status {code}"
    row = Row(input=profile.place.url, exit_code=code, status=STATUS.get(code, "failed"), error=error)
    if code not in STATUS:
        return row
    row = row.with_summary(summary.read_text())
    target = settings.output.joined(f"{profile.name}.data")
    host = host_of(output / "data" if output.is_dir() else output)
    publish(output, target)
    return replace(row, output=target.url, host=host)


def profile_file(profile: Profile, scratch: Path, room: Room, skip: Skip) -> Path:
    """The path of the profile on this machine."""
    if not profile.place.is_local:
        return fetch(profile, scratch, room, skip)
    for entry in files_of(profile):
        if reason := irregular(entry):
            raise Unusable(f"{entry['name']} {reason}")
    return Path(profile.place.path)


def run(command: list[str], errors: Path, claim: int, deadline: float) -> int:
    """The exit status of a command, which is stopped at the deadline."""
    with errors.open("wb") as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[claim],
            start_new_session=True,
        )
    try:
        return child.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        raise TimeIsUp from None
    finally:
        stop(child)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends a child and its descendants, if they still run: first with SIGTERM, which lets them clean up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(child.pid, number)
                child.wait(GRACE_SECONDS)


def error_output(errors: Path) -> str:
    with errors.open("rb") as file:
        return file.read(MAX_ERROR_BYTES).decode(errors="replace").strip()


def sweep_store(profile: Profile, settings: Settings) -> None:
    """Removes unfinished objects of killed attempts. They are in a folder that only this profile uses."""
    if settings.store is None:
        return
    objects = scratch_of(profile, settings).relative_to("/")
    folder = settings.store / objects
    if not folder.is_dir() or folder.resolve() != settings.store.resolve() / objects:
        return
    for path in folder.rglob(".jitinject-*.tmp"):
        path.unlink(missing_ok=True)


def host_of(profile: Path) -> str | None:
    """The recorded machine, from the header of a profile that jitinject wrote.

    The layout is that of perf.data-file-format.txt: a table of sections, one per bit, follows the data.
    """
    hostname = 3
    # None if the table or the section is truncated or elsewhere.
    with profile.open("rb") as file, contextlib.suppress(struct.error, ValueError, OSError):
        header = file.read(104)
        if not header.startswith((b"PERFILE2", b"2ELIFREP")):
            return None
        order = "<" if header.startswith(b"PERFILE2") else ">"
        data_offset, data_size, features = struct.unpack(order + "40x2Q16xQ24x", header)
        if not features >> hostname & 1:
            return None
        before = (features & ((1 << hostname) - 1)).bit_count()
        file.seek(data_offset + data_size + 16 * before)
        offset, size = struct.unpack(order + "QQ", file.read(16))
        file.seek(offset)
        section = file.read(min(size, MAX_HOSTNAME_BYTES))
        (length,) = struct.unpack_from(order + "I", section)
        return section[4 : 4 + length].split(b"\0")[0].decode(errors="replace") or None
    return None


# Publishing


def publish(local: Path, target: Place) -> None:
    """Copies a profile atomically. For a folder, the file that makes it a profile comes last."""
    if local.is_dir():
        files = (path for path in local.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: (path.name == "data", path)):
            publish_file(path, target.joined(str(path.relative_to(local))))
    else:
        publish_file(local, target)


def publish_file(local: Path, target: Place) -> None:
    with part_of(target) as part:
        if target.is_local:
            # Profiles are readable by their owners only, as in perf and jitinject; the copy keeps this mode.
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        target.fs.put_file(str(local), part)
        target.fs.mv(part, target.path)


def try_writing(target: Place) -> None:
    """Raises the error that publishing a file there would raise, as far as an empty file shows it."""
    if target.fs.isdir(target.path):
        raise IsADirectoryError(f"{target.url} is a folder")
    with part_of(target) as part:
        target.fs.pipe_file(part, b"")
        target.fs.rm_file(part)


@contextlib.contextmanager
def part_of(target: Place) -> Iterator[str]:
    """The temporary name of a file to publish. The file is removed if that fails."""
    parent, _, name = target.path.rpartition("/")
    part = f"{parent}/.{name}.{uuid.uuid4().hex}.part"
    target.fs.makedirs(parent, exist_ok=True)
    try:
        yield part
    except BaseException:
        with contextlib.suppress(Exception):
            target.fs.rm_file(part)
        raise


def sweep_output(output: Place, profiles: Iterable[Profile]) -> None:
    """Removes unfinished uploads of killed attempts from the output."""
    names = {f"{profile.name}.data" for profile in profiles}
    output.fs.invalidate_cache()
    for path in map(PurePosixPath, output.fs.find(output.path, maxdepth=3)):
        part = PART.fullmatch(path.name)
        if part and (part[1] in names or names.intersection(path.parts)):
            output.fs.rm_file(str(path))


def write_table(rows: list[Row], target: Place) -> None:
    records = [{name: as_text(value) for name, value in asdict(row).items()} for row in rows]
    table = pyarrow.Table.from_pylist(records, schema=schema())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table"
        pyarrow.parquet.write_table(table, file)
        publish_file(file, target)


def as_text(value: object) -> object:
    """A table needs valid text; file names may not be."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


# The run


def run_all(client: Client, profiles: list[Profile], settings: Settings, retries: int) -> dict[Profile, Row]:
    """A row for each profile, even if it or its workers failed."""
    attempts: Counter[str] = Counter()
    client.subscribe_topic(settings.run, lambda event: attempts.update([event[1]["profile"]]))
    keys = [f"jitinject-{settings.run}-{profile.name}" for profile in profiles]
    futures = client.map(process, profiles, settings=settings, key=keys, retries=retries, pure=False)
    known = dict(zip(futures, profiles, strict=True))
    rows = {}
    for future in as_completed(futures):
        profile = known.pop(future)
        if future.status == "finished":
            row = Row(**future.result())
        else:
            error = future.exception() or ConnectionError("the scheduler is gone")
            row = Row(input=profile.place.url, error=describe(error))
            sweep_store(profile, settings)
        rows[profile] = replace(row, attempts=max(attempts[profile.name], 1))
        # Otherwise it would be repeated if its worker exits.
        future.release()
    client.unsubscribe_topic(settings.run)
    # Other machines may have folders of killed workers. If the scheduler is gone, no row is lost.
    with contextlib.suppress(OSError):
        client.run(clean_scratch, [scratch_of(profile, settings) for profile in profiles], on_error="return")
    return rows


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class RunFailed(Exception):
    """An error that ends the whole run."""


@contextlib.contextmanager
def ending_run(what: str) -> Iterator[None]:
    """Turns any error into RunFailed. Drivers of storage, and Dask, may raise any exception."""
    try:
        yield
    except Exception as error:
        raise RunFailed(f"{what}: {describe(error)}") from error


def clean_scratch(folders: list[Path]) -> None:
    for folder in folders:
        if folder.exists() and (claim := try_claim(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(claim)


@contextlib.contextmanager
def connected(options: argparse.Namespace) -> Iterator[Client]:
    """An existing cluster, or a private one on this machine."""
    if options.scheduler:
        with ending_run("no scheduler"):
            connection = Client(options.scheduler)
        with connection as client:
            yield client
        return
    configuration = {
        "distributed.scheduler.allowed-failures": options.retries,
        # A profile does not wait for a busy worker while another one is idle.
        "distributed.scheduler.worker-saturation": 1.0,
        # No status pages, which every user of this machine could read.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    cluster = partial(LocalCluster, threads_per_worker=1, security=True, dashboard_address="127.0.0.1:0")
    with dask.config.set(configuration), cluster(n_workers=options.workers) as local, Client(local) as client:
        yield client


def gather(urls: Iterable[str]) -> tuple[list[Profile], list[Row]]:
    """All profiles, each once, and rows for addresses without profiles and for skipped ones."""
    profiles: dict[str, Profile] = {}
    others: dict[str, Row] = {}

    def skip(url: str, reason: str) -> None:
        others[url] = Row(input=url, status="skipped", error=reason)

    for url in urls:
        try:
            profiles.update((profile.place.url, profile) for profile in find_profiles(url, skip))
        # Drivers of storage may raise any exception.
        except Exception as error:
            others[url] = Row(input=url, error=describe(error))
    return list(profiles.values()), list(others.values())


def listed(options: argparse.Namespace) -> list[str]:
    if not options.list:
        return options.profiles
    # Names of files may have any bytes, as arguments may.
    source = sys.stdin.fileno() if options.list == "-" else options.list
    with open(source, errors="surrogateescape", closefd=options.list != "-") as file:
        lines = [line.strip() for line in file]
    return options.profiles + [line for line in lines if line]


def report(rows: list[Row], seconds: float) -> None:
    for row in rows:
        if row.status != "done":
            reason = (row.error or "?").splitlines()[0]
            print(printable(f"fleet: {row.status}: {row.input}: {reason}"), file=sys.stderr)
        for skipped in (row.skipped or "").splitlines():
            print(printable(f"fleet: skipped, of {row.input}: {skipped}"), file=sys.stderr)
    became = Counter(row.status for row in rows)
    again = sum(row.attempts > 1 for row in rows)
    jit, named = (sum(getattr(row, field) or 0 for row in rows) for field in ("samples_jit", "samples_named"))
    print(
        f"fleet: {counted(len(rows) - became['skipped'], 'profile')} in {seconds:.1f} s: {became['done']} done, "
        f"{became['fewer-named']} with fewer named than asked for, {became['failed']} failed, "
        f"{became['timeout']} timed out, {became['skipped']} skipped, {again} needed more than one attempt; "
        f"{counted(jit, 'sample')} in JIT code, {named} of them named"
    )


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def printable(text: str) -> str:
    """Escapes control characters: names come from anyone who can write to the storage."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)


def parse(arguments: list[str]) -> argparse.Namespace:
    place = arguments.index("--") if "--" in arguments else len(arguments)
    ours, theirs = arguments[:place], arguments[place + 1 :]
    parser = argparse.ArgumentParser(
        prog="fleet.py",
        description="Runs jitinject on many profiles, on many machines.",
        epilog="Arguments after -- are passed to jitinject. Exit status: 0 all done; 1 some not; 2 wrong usage.",
    )
    parser.add_argument(
        "profiles", nargs="*", metavar="PROFILE", help="profile, folder to search, or pattern; any fsspec URL"
    )
    parser.add_argument("--list", metavar="FILE", help="read more from FILE, one per line; - is standard input")
    parser.add_argument("--output", metavar="URL", required=True, help="folder for the profiles with names")
    parser.add_argument("--table", metavar="URL", required=True, help="Parquet file with a row for each profile")
    parser.add_argument(
        "--store",
        metavar="DIR",
        type=local_folder,
        help="build-id cache for all objects, on a file system shared by all workers",
    )
    parser.add_argument(
        "--scratch",
        metavar="DIR",
        type=local_folder,
        default=Path(f"/var/tmp/jitinject-fleet-{os.geteuid()}"),
        help="local folder on each machine; profiles contain its path [%(default)s]",
    )
    parser.add_argument("--jitinject", metavar="PATH", default="jitinject", help="the program to run [from PATH]")
    parser.add_argument("--timeout", metavar="SECONDS", type=positive, default=600.0, help="limit per profile [600]")
    parser.add_argument(
        "--max-bytes",
        metavar="N",
        type=count,
        default=16 << 30,
        help="limit for bytes fetched per profile from other storage [%(default)s, 16 GiB]",
    )
    parser.add_argument(
        "--retries", metavar="N", type=count, default=3, help="more attempts after a failed worker or transfer [3]"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="scheduler of an existing cluster")
    parser.add_argument(
        "--workers",
        metavar="N",
        type=count,
        default=os.cpu_count(),
        help="number of workers without --scheduler [one per processor]",
    )
    options = parser.parse_intermixed_args(ours)
    options.arguments = tuple(theirs)
    if not options.profiles and not options.list:
        parser.error("no profiles; name some, or use --list")
    if options.workers == 0 and not options.scheduler:
        parser.error("--workers must be at least 1 without --scheduler")
    return options


def local_folder(text: str) -> Path:
    path = text.removeprefix("file://")
    if "://" in path:
        raise argparse.ArgumentTypeError(f"not a local folder: {text}")
    return Path(path)


def positive(text: str) -> float:
    if not (value := float(text)) > 0:
        raise ValueError
    return value


def count(text: str) -> int:
    if (value := int(text)) < 0:
        raise ValueError
    return value


def settings_of(options: argparse.Namespace) -> Settings:
    program = options.jitinject
    return Settings(
        run=uuid.uuid4().hex,
        jitinject=os.path.abspath(program) if "/" in program else program,
        arguments=options.arguments,
        output=Place.parse(options.output),
        store=options.store and options.store.absolute(),
        scratch=Path(os.path.abspath(options.scratch)),
        timeout=options.timeout,
        max_bytes=options.max_bytes,
    )


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        settings, table, urls = settings_of(options), Place.parse(options.table), listed(options)
    except (OSError, ValueError, ImportError) as error:
        return complain(error, USAGE)
    try:
        rows = run_fleet(options, settings, table, urls)
    except RunFailed as error:
        return complain(error, FAILED)
    return DONE if all(row.status in ("done", "skipped") for row in rows) else FAILED


def complain(error: Exception, status: int) -> int:
    print(printable(f"fleet: {error}"), file=sys.stderr)
    return status


def run_fleet(options: argparse.Namespace, settings: Settings, table: Place, urls: list[str]) -> list[Row]:
    start = time.monotonic()
    # Otherwise these errors would show up only after all the work.
    with ending_run("can't write the table"):
        try_writing(table)
    with ending_run("can't write to the output"):
        try_writing(settings.output.joined(settings.run))
    profiles, rows = gather(urls)
    if profiles:
        with connected(options) as client:
            done = run_all(client, profiles, settings, options.retries)
        rows = [done[profile] for profile in profiles] + rows
    report(rows, time.monotonic() - start)
    with ending_run("can't write the table"):
        write_table(rows, table)
    if any(row.output for row in rows):
        with ending_run("can't tidy up the output"):
            sweep_output(settings.output, profiles)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
