#!/usr/bin/env python3
"""Runs jitinject over the profiles of many machines.

    profiles ──► a task of Dask for each: fetch, jitinject, publish ──► profiles with names  (--output)
                                              │                    ──► one row for each       (--table)
                                              └──────────────────────► objects, by build-id   (--store)

Profiles have nothing to do with each other, and objects are named by their content. So any number of workers
can fill one build-id store, a task can be done again wherever it was lost, and the result is the same.
"""

import argparse
import contextlib
import fcntl
import fnmatch
import hashlib
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
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from json import loads
from pathlib import Path, PurePosixPath
from typing import get_args, get_type_hints

import dask
import fsspec
import pyarrow
import pyarrow.parquet
from distributed import Client, LocalCluster, as_completed, get_worker
from fsspec.implementations.local import LocalFileSystem

DONE, FAILED, USAGE = 0, 1, 2

# What profiles are called in folders that are searched for them. One that is a folder itself has a file `data`.
PROFILES = ["perf.data", "*.perf.data", "perf.pipe"]
# What runtimes leave beside a profile, and below it where LLVM and perf's agent for Java put theirs.
BESIDE = ["jit-*.dump", "perf-*.map", "*.mlpd"]
DUMPS_BELOW = ".debug/jit"
# What a profile that is a folder consists of.
PARTS = ["data", "data.*", "kcore_dir*/*"]

# What files are called on their way to where they belong.
PART = re.compile(r"\.(.+)\.[0-9a-f]{32}\.part")

# More files than any profile has; what is beside it may be somebody's idea of a joke.
MAX_FETCHED = 10_000
# How much is kept of what jitinject says when it fails; the first lines have the cause.
MAX_ERROR_BYTES = 4096
# How much is read of the section of a profile that names its machine; Linux has 64 bytes for the name.
MAX_HOSTNAME_BYTES = 260
# How long jitinject may take to remove what it has not finished, before it is killed.
GRACE_SECONDS = 10
# What jitinject exits with where all is written; in the second case, too few samples have names for --fail-under.
STATUS = {0: "done", 3: "fewer-named"}


@dataclass(frozen=True)
class Place:
    """A file or folder of any file system that fsspec knows."""

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
        """Another place in the same file system, whose address is made from this one's."""
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
    """One profile, and what all that is made of it is called."""

    place: Place
    is_folder: bool

    @property
    def name(self) -> str:
        """Follows from the address alone: the end of it, to be read, and a hash of all of it, to be unique."""
        words = PurePosixPath(self.place.path).parts[-2:]
        shown = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(words)).strip("_.-")[-80:].lstrip("_.-")
        unique = hashlib.sha256(self.place.url.encode(errors="surrogateescape")).hexdigest()[:16]
        return f"{shown or 'profile'}-{unique}"


@dataclass(frozen=True)
class Settings:
    """What holds for all profiles of a run."""

    run: str
    jitinject: str
    arguments: tuple[str, ...]
    output: Place
    store: Path | None
    scratch: Path
    timeout: float


@dataclass(frozen=True)
class Row:
    """What the table says of a profile: its columns, in this order."""

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
            warnings=sum(warning["count"] for warning in summary["warnings"]),
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


def find_profiles(url: str) -> list[Profile]:
    """The profiles that an address means: one, or those in a folder and below, or all that a pattern matches."""
    place = Place.parse(url)
    has_pattern = any(sign in place.path for sign in "*?[")
    if has_pattern and not place.fs.exists(place.path):
        found = [profile for path in sorted(place.fs.glob(place.path)) for profile in profiles_at(place.at(path))]
    else:
        found = profiles_at(place)
    if not found:
        raise FileNotFoundError("there is no profile")
    return found


def profiles_at(place: Place) -> list[Profile]:
    if not place.fs.isdir(place.path):
        return [Profile(place, is_folder=False)] if place.fs.exists(place.path) else []
    if place.fs.isfile(f"{place.path.rstrip('/')}/data"):
        return [Profile(place, is_folder=True)]
    paths = (PurePosixPath(path) for path in sorted(place.fs.find(place.path)))
    return [profile for path in paths for profile in profile_of(place, path)]


def profile_of(folder: Place, path: PurePosixPath) -> list[Profile]:
    """The profile that a file found in a folder is, or is the first part of."""
    if path.name == "data" and matches(path.parent.name, PROFILES):
        return [Profile(folder.at(str(path.parent)), is_folder=True)]
    if matches(path.name, PROFILES):
        return [Profile(folder.at(str(path)), is_folder=False)]
    return []


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


# Fetching them


def more_arguments(profile: Path) -> list[str]:
    """Names what lies beside the profile and is not looked for there.

    What is named by itself is believed whoever wrote it, so this has to look at that; for a folder jitinject does.
    """
    below = profile.parent / DUMPS_BELOW
    more = ["--jitdump", str(below)] if below.is_dir() else []
    owners = {0, os.geteuid(), profile.stat().st_uid}
    for log in sorted(profile.parent.glob("*.mlpd")):
        found = log.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid in owners:
            more += ["--mono-log", str(log)]
    return more


def fetch(profile: Profile, scratch: Path) -> Path:
    """Copies a profile and what belongs to it, and nothing else of what lies around it."""
    fs, path = profile.place.fs, profile.place.path
    parent, _, name = path.rstrip("/").rpartition("/")
    inside = safe_path(parent, path)
    if inside is None:
        raise ValueError(f"the name of the profile can't be used: {name!r}")
    wanted = list(parts(fs, path)) if profile.is_folder else [path]
    wanted += beside(fs, parent)
    if len(wanted) > MAX_FETCHED:
        raise ValueError(f"{len(wanted)} files belong to the profile; {MAX_FETCHED} are the most")
    for source in wanted:
        if target := safe_path(parent, source):
            (scratch / target).parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(source, str(scratch / target))
    return scratch / inside


def parts(fs: fsspec.AbstractFileSystem, folder: str) -> Iterator[str]:
    for path in fs.find(folder, maxdepth=2):
        inside = safe_path(folder, path)
        if inside and any(inside.match(part) and len(inside.parts) == part.count("/") + 1 for part in PARTS):
            yield path


def beside(fs: fsspec.AbstractFileSystem, folder: str) -> Iterator[str]:
    for entry in fs.ls(folder, detail=True):
        if entry["type"] == "file" and matches(PurePosixPath(entry["name"]).name, BESIDE):
            yield entry["name"]
    below = f"{folder}/{DUMPS_BELOW}"
    if fs.isdir(below):
        yield from (path for path in fs.find(below, maxdepth=2) if matches(PurePosixPath(path).name, BESIDE))


def safe_path(folder: str, path: str) -> PurePosixPath | None:
    """Where a path lies in a folder, unless it is not in it: names come from whoever filled the storage."""
    folder, path = folder.strip("/"), path.strip("/")
    if folder:
        if not path.startswith(folder + "/"):
            return None
        path = path[len(folder) + 1 :]
    names = path.split("/")
    return None if any(name in ("", ".", "..") or "\0" in name for name in names) else PurePosixPath(path)


# The task


def process(profile: Profile, settings: Settings) -> dict[str, object]:
    """All there is to do for a profile, on a worker.

    What it raises is worth another attempt. That jitinject can't do with a profile is a result like another.
    """
    worker = get_worker()
    worker.log_event(settings.run, {"profile": profile.name})
    start = time.monotonic()
    with claimed(scratch_of(profile, settings), settings.timeout) as (folder, claim):
        row = inject(profile, settings, folder, claim)
    return asdict(replace(row, worker=worker.address, seconds=time.monotonic() - start))


def scratch_of(profile: Profile, settings: Settings) -> Path:
    """The same on every machine: the profile names its objects by the paths that they had when it was written."""
    return settings.scratch / profile.name


@contextlib.contextmanager
def claimed(folder: Path, patience: float) -> Iterator[tuple[Path, int]]:
    """An empty folder of our own, which goes in the end.

    It may be there already, left by a worker that was killed, or in use, if only the worker was and its jitinject
    goes on. So jitinject shares the lock, which ends with the last of those that have it.
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
        # Whoever had it before has removed it.
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
    row = Row(input=profile.place.url)
    source = Path(profile.place.path) if profile.place.is_local else fetch(profile, folder / "input")
    output, summary, errors = folder / "perf.jit.data", folder / "summary.json", folder / "errors"
    command = [settings.jitinject, "-q", "-i", str(source), "-o", str(output), "--summary", str(summary)]
    command += more_arguments(source)
    if settings.store:
        command += ["--build-id-cache", str(settings.store)]
    command += settings.arguments
    try:
        code = run(command, errors, claim, settings.timeout)
    finally:
        sweep_store(profile, settings)
    if code is None:
        return replace(row, status="timeout", error=f"not done after {settings.timeout:g} s")
    error = None if code == 0 else said(errors) or f"ended with status {code}"
    row = replace(row, exit_code=code, status=STATUS.get(code, "failed"), error=error)
    if code not in STATUS:
        return row
    row = row.with_summary(summary.read_text())
    target = settings.output.joined(f"{profile.name}.data")
    host = host_of(output / "data" if output.is_dir() else output)
    publish(output, target)
    return replace(row, output=target.url, host=host)


def run(command: list[str], errors: Path, claim: int, timeout: float) -> int | None:
    """The exit status of a command, or None if it was stopped."""
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
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        stop(child)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Ends a child and its own, if they still run: first so that they can tidy up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(child.pid, number)
                child.wait(GRACE_SECONDS)


def said(errors: Path) -> str:
    with errors.open("rb") as file:
        return file.read(MAX_ERROR_BYTES).decode(errors="replace").strip()


def sweep_store(profile: Profile, settings: Settings) -> None:
    """Removes what killed attempts left of objects: it lies where this profile's objects do, and nobody else's."""
    if settings.store is None:
        return
    objects = scratch_of(profile, settings).relative_to("/")
    folder = settings.store / objects
    if not folder.is_dir() or folder.resolve() != settings.store.resolve() / objects:
        return
    for path in folder.rglob(".jitinject-*.tmp"):
        path.unlink(missing_ok=True)


def host_of(profile: Path) -> str | None:
    """The machine that was recorded, as the header of a profile that jitinject wrote names it.

    The layout is that of perf.data-file-format.txt: behind the data is a table of sections, one for each bit.
    """
    hostname = 3
    # Where the table or the section is cut, or lies somewhere else, the machine has no name.
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
    """Copies a file to where it appears whole. Of a profile that is a folder, what makes it one comes last."""
    if local.is_dir():
        files = (path for path in local.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: (path.name == "data", path)):
            publish_file(path, target.joined(str(path.relative_to(local))))
    else:
        publish_file(local, target)


def publish_file(local: Path, target: Place) -> None:
    with part_of(target) as part:
        if target.is_local:
            # Profiles are for their owners only, as perf and jitinject have it; the copy keeps this mode.
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        target.fs.put_file(str(local), part)
        target.fs.mv(part, target.path)


def try_writing(target: Place) -> None:
    """Raises what publishing a file there would raise, as far as an empty one tells."""
    if target.fs.isdir(target.path):
        raise IsADirectoryError(f"{target.url} is a folder")
    with part_of(target) as part:
        target.fs.pipe_file(part, b"")
        target.fs.rm_file(part)


@contextlib.contextmanager
def part_of(target: Place) -> Iterator[str]:
    """What a file is called on its way to where it belongs. It goes if that fails."""
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
    """Removes what killed attempts left half-way on its way to the output."""
    names = {f"{profile.name}.data" for profile in profiles}
    output.fs.invalidate_cache()
    for path in map(PurePosixPath, output.fs.find(output.path, maxdepth=3)):
        part = PART.fullmatch(path.name)
        if part and (part[1] in names or names.intersection(path.parts)):
            output.fs.rm_file(str(path))


def write_table(rows: list[Row], target: Place) -> None:
    told = [{name: as_text(value) for name, value in asdict(row).items()} for row in rows]
    table = pyarrow.Table.from_pylist(told, schema=schema())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table"
        pyarrow.parquet.write_table(table, file)
        publish_file(file, target)


def as_text(value: object) -> object:
    """The names of files need not be text, as a table wants it."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


# The run


def run_all(client: Client, profiles: list[Profile], settings: Settings, retries: int) -> dict[Profile, Row]:
    """A row for each profile, whatever became of it and of the workers."""
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
            row = Row(input=profile.place.url, error=told(error))
            sweep_store(profile, settings)
        rows[profile] = replace(row, attempts=max(attempts[profile.name], 1))
        # Or else it would be done again if the worker that did it went away.
        future.release()
    client.unsubscribe_topic(settings.run)
    # Workers that were killed have left theirs to others on other machines. No row is lost if the scheduler is gone.
    with contextlib.suppress(OSError):
        client.run(clean_scratch, [scratch_of(profile, settings) for profile in profiles], on_error="return")
    return rows


def told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class RunFailed(Exception):
    """What ends a run for all profiles."""


@contextlib.contextmanager
def ending_run(what: str) -> Iterator[None]:
    """Says what could not be done. Drivers of storage, and Dask, raise what they like."""
    try:
        yield
    except Exception as error:
        raise RunFailed(f"{what}: {told(error)}") from error


def clean_scratch(folders: list[Path]) -> None:
    for folder in folders:
        if folder.exists() and (claim := try_claim(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(claim)


@contextlib.contextmanager
def connected(options: argparse.Namespace) -> Iterator[Client]:
    """A cluster that is there, or one of this machine alone, which nobody else can talk to."""
    if options.scheduler:
        with ending_run("no scheduler"):
            there = Client(options.scheduler)
        with there as client:
            yield client
        return
    configuration = {
        "distributed.scheduler.allowed-failures": options.retries,
        # No profile waits behind another on one worker while there is a second one.
        "distributed.scheduler.worker-saturation": 1.0,
        # Pages that tell everybody on this machine what is done.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    cluster = partial(LocalCluster, threads_per_worker=1, security=True, dashboard_address="127.0.0.1:0")
    with dask.config.set(configuration), cluster(n_workers=options.workers) as local, Client(local) as client:
        yield client


def gather(urls: Iterable[str]) -> tuple[list[Profile], list[Row]]:
    """All profiles, each once, and rows for addresses that lead to none."""
    profiles: dict[str, Profile] = {}
    failed: dict[str, Row] = {}
    for url in urls:
        try:
            profiles.update((profile.place.url, profile) for profile in find_profiles(url))
        # Drivers of storage raise what they like.
        except Exception as error:
            failed[url] = Row(input=url, error=told(error))
    return list(profiles.values()), list(failed.values())


def listed(options: argparse.Namespace) -> list[str]:
    if not options.list:
        return options.profiles
    with contextlib.nullcontext(sys.stdin) if options.list == "-" else open(options.list) as file:
        lines = [line.strip() for line in file]
    return options.profiles + [line for line in lines if line]


def report(rows: list[Row], seconds: float) -> None:
    for row in rows:
        if row.status != "done":
            reason = (row.error or "?").splitlines()[0]
            print(printable(f"fleet: {row.status}: {row.input}: {reason}"), file=sys.stderr)
    became = Counter(row.status for row in rows)
    again = sum(row.attempts > 1 for row in rows)
    jit, named = (sum(getattr(row, field) or 0 for row in rows) for field in ("samples_jit", "samples_named"))
    print(
        f"fleet: {counted(len(rows), 'profile')} in {seconds:.1f} s: {became['done']} done, "
        f"{became['fewer-named']} with fewer named than asked for, {became['failed']} failed, "
        f"{became['timeout']} timed out, {again} needed more than one attempt; "
        f"{counted(jit, 'sample')} in JIT code, {named} of them named"
    )


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def printable(text: str) -> str:
    """Without what could steer a terminal: names come from whoever filled the storage."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)


def parse(arguments: list[str]) -> argparse.Namespace:
    place = arguments.index("--") if "--" in arguments else len(arguments)
    ours, theirs = arguments[:place], arguments[place + 1 :]
    parser = argparse.ArgumentParser(
        prog="fleet.py",
        description="Runs jitinject over many profiles, on many machines.",
        epilog="What stands behind -- is given to jitinject. Exit status: 0 all done; 1 some not; 2 wrong usage.",
    )
    parser.add_argument(
        "profiles", nargs="*", metavar="PROFILE", help="a profile, a folder with some, or a pattern; any URL of fsspec"
    )
    parser.add_argument("--list", metavar="FILE", help="more of them, one a line; - is standard input")
    parser.add_argument("--output", metavar="URL", required=True, help="the folder for the profiles with names")
    parser.add_argument("--table", metavar="URL", required=True, help="the Parquet file with a row for each profile")
    parser.add_argument(
        "--store",
        metavar="DIR",
        type=local_folder,
        help="the build-id cache for all objects, on a file system that all share",
    )
    parser.add_argument(
        "--scratch",
        metavar="DIR",
        type=local_folder,
        default=Path(f"/var/tmp/jitinject-fleet-{os.geteuid()}"),
        help="a folder of each machine; profiles name their objects by it [%(default)s]",
    )
    parser.add_argument("--jitinject", metavar="PATH", default="jitinject", help="[the one on PATH]")
    parser.add_argument("--timeout", metavar="SECONDS", type=positive, default=3600.0, help="for each profile [3600]")
    parser.add_argument(
        "--retries", metavar="N", type=count, default=3, help="more attempts after a worker or a transfer failed [3]"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="the scheduler of a cluster that is there")
    parser.add_argument(
        "--workers", metavar="N", type=count, default=os.cpu_count(), help="without --scheduler, how many to start"
    )
    options = parser.parse_intermixed_args(ours)
    options.arguments = tuple(theirs)
    if not options.profiles and not options.list:
        parser.error("no profiles: name some, or a --list of them")
    if options.workers == 0 and not options.scheduler:
        parser.error("there is nothing to do without workers")
    return options


def local_folder(text: str) -> Path:
    path = text.removeprefix("file://")
    if "://" in path:
        raise argparse.ArgumentTypeError(f"not a folder of a file system: {text}")
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
    return DONE if all(row.status == "done" for row in rows) else FAILED


def complain(error: Exception, status: int) -> int:
    print(printable(f"fleet: {error}"), file=sys.stderr)
    return status


def run_fleet(options: argparse.Namespace, settings: Settings, table: Place, urls: list[str]) -> list[Row]:
    start = time.monotonic()
    # What can't be written would be known only when all work is done.
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
