"""scripts/fleet.py on all recordings: the results equal those of sequential runs, even if workers are killed."""

import argparse
import contextlib
import io
import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import zipfile
from collections.abc import Callable
from pathlib import Path

import dask
import fsspec
import pyarrow.parquet
from distributed import LocalCluster
from fsspec.implementations.memory import MemoryFileSystem as Memory

ROOT = Path(__file__).resolve().parents[2]
JITINJECT = Path(os.environ.get("JITINJECT", ROOT / "target/debug/jitinject")).absolute()
FLEET = ROOT / "scripts/fleet.py"
RECORDINGS = sorted(path for name in ("perf.data", "perf.pipe") for path in ROOT.glob(f"testdata/*/{name}"))
# Time limit for everything that a test waits for.
PATIENCE = 120.0

sys.path.insert(0, str(FLEET.parent))
import fleet  # noqa: E402

# Replaces jitinject. The first attempt at each held profile stops in the middle: objects are in the store, one of them
# incomplete, and the output in the scratch folder is truncated. Then it writes its PID and its parent's, and waits for
# the file `go`.
HOLDING = """#!/bin/sh
echo $PPID >>{folder}/workers
case "$3" in
{held})
    name=$(basename "$(dirname "$3")")
    echo "$name begins" >>{folder}/log
    if mkdir {folder}/"$name" 2>/dev/null; then
        {jitinject} "$@"
        truncate -s 1000 "$5"
        object=$(find {store}/"$(dirname "$5")" -name elf | head -n 1)
        head -c 300 "$object" >"$(dirname "$object")/.jitinject-$$-0.tmp"
        echo $$ $PPID >{folder}/"$name"/made && mv {folder}/"$name"/made {folder}/"$name"/started
        until [ -e {folder}/"$name"/go ]; do sleep 0.05; done
        echo "$name goes" >>{folder}/log
    fi
    {jitinject} "$@"
    status=$?
    echo "$name ends" >>{folder}/log
    exit $status ;;
esac
exec {jitinject} "$@"
"""

# Kills its parent process for some profiles, and sleeps for others.
DEADLY = """#!/bin/sh
case "$3" in
*/deadly.perf.data) sleep 1; kill -9 $PPID; exit 1 ;;
*/slow.perf.data) sleep 600 ;;
esac
exec {jitinject} "$@"
"""


def recording(name: str) -> Path:
    return ROOT / "testdata" / name / "perf.data"


def program(path: Path, text: str, **words: object) -> Path:
    path.write_text(text.format(jitinject=shlex.quote(str(JITINJECT)), **words))
    path.chmod(0o755)
    return path


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Everything in a folder: contents of files, targets of links."""

    def content(path: Path) -> bytes | str | None:
        return os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None

    return {str(path.relative_to(folder)): content(path) for path in folder.rglob("*")}


def files(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in tree(folder).items() if isinstance(content, bytes)}


def rows_of(table: Path) -> list[dict]:
    return pyarrow.parquet.read_table(table).to_pylist()


def shown(profile: Path, store: Path) -> str:
    """Each sample as perf prints it, with the objects of a build-id cache."""
    command = ["perf", "--buildid-dir", str(store), "script", "-f", "-i", str(profile), "--no-inline"]
    command += ["--ns", "-F", "pid,time,ip,sym"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout


class Sequential:
    """The results of jitinject for all recordings, one after the other, with the same scratch folders."""

    SHOWN = ["java17", "node20", "php82", "postgres15", "wasmtime"]

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.store = folder / "sequential-store"
        self.outputs: dict[str, bytes] = {}
        self.summaries: dict[str, dict] = {}
        self.shown: dict[str, str] = {}
        for path in RECORDINGS:
            self.inject(path, scratch)

    def inject(self, path: Path, scratch: Path) -> None:
        [profile] = fleet.find_profiles(str(path))
        folder = scratch / profile.name
        folder.mkdir(parents=True)
        output, summary = folder / "perf.jit.data", folder / "summary.json"
        command = [JITINJECT, "-q", "-i", path, "-o", output, "--summary", summary, "--build-id-cache", self.store]
        # Dumps at the recorded paths are not from the recordings.
        command += ["--confine"]
        if (path.parent / ".debug/jit").is_dir():
            command += ["--jitdump", path.parent / ".debug/jit"]
        for log in path.parent.glob("*.mlpd"):
            command += ["--mono-log", log]
        subprocess.run(command, check=True)
        self.outputs[f"{profile.name}.data"] = output.read_bytes()
        self.summaries[str(path)] = json.loads(summary.read_text())
        if path.parent.name in self.SHOWN:
            with tempfile.TemporaryDirectory() as nothing:
                self.shown[path.parent.name] = shown(output, Path(nothing))
        shutil.rmtree(folder)


class AllRecordings(unittest.TestCase):
    """Two workers, both killed in the middle of a profile: one together with its jitinject, one without."""

    KILLED_WITH_CHILD, KILLED_ALONE = "node20", "php82"

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.scratch, cls.store, cls.output = (cls.folder / name for name in ("scratch", "store", "output"))
        cls.table = cls.folder / "table.parquet"
        cls.scratch.mkdir(mode=0o700)
        cls.sequential = Sequential(cls.folder, cls.scratch)
        cls.log = cls.run_fleet()
        cls.rows = rows_of(cls.table)

    @classmethod
    def run_fleet(cls) -> list[str]:
        held = "|".join(str(recording(name)) for name in (cls.KILLED_WITH_CHILD, cls.KILLED_ALONE))
        jitinject = program(cls.folder / "jitinject", HOLDING, held=held, folder=cls.folder, store=cls.store)
        command = [sys.executable, FLEET, ROOT / "testdata", "--output", cls.output, "--store", cls.store]
        command += ["--table", cls.table, "--scratch", cls.scratch, "--jitinject", jitinject, "--workers", "2"]
        running = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        try:
            child, worker = cls.held(cls.KILLED_WITH_CHILD)
            os.kill(worker, signal.SIGKILL)
            os.killpg(child, signal.SIGKILL)
            child, worker = cls.held(cls.KILLED_ALONE)
            wait_for(lambda: len(cls.workers()) == 3, "another worker replaces the first")
            os.kill(worker, signal.SIGKILL)
            # Time for another attempt, which must not begin while the first attempt's jitinject still runs.
            time.sleep(3)
            (cls.folder / cls.KILLED_ALONE / "go").touch()
            cls.said, _ = running.communicate(timeout=PATIENCE)
        finally:
            running.kill()
            running.communicate()
        cls.status = running.returncode
        return (cls.folder / "log").read_text().splitlines()

    @classmethod
    def workers(cls) -> set[str]:
        """PIDs of the workers that have run jitinject."""
        return set((cls.folder / "workers").read_text().split())

    @classmethod
    def held(cls, name: str) -> tuple[int, int]:
        """PIDs of the held jitinject and of its worker."""
        started = cls.folder / name / "started"
        wait_for(started.exists, f"{name} is begun")
        # Time for the worker's messages to arrive.
        time.sleep(1)
        child, worker = started.read_text().split()
        return int(child), int(worker)

    def test_every_profile_has_one_row_and_is_done(self) -> None:
        self.assertEqual(self.status, 0, self.said)
        self.assertEqual(sorted(row["input"] for row in self.rows), sorted(map(str, RECORDINGS)))
        self.assertEqual({(row["status"], row["exit_code"], row["error"]) for row in self.rows}, {("done", 0, None)})
        self.assertIn(f"{len(RECORDINGS)} profiles in ", self.said)
        self.assertIn(f" {len(RECORDINGS)} done, 0 with fewer named than asked for, 0 failed, 0 timed out, ", self.said)
        self.assertIn(", 2 needed more than one attempt; ", self.said)

    def test_killed_workers_cost_an_attempt(self) -> None:
        again = {Path(row["input"]).parent.name: row["attempts"] for row in self.rows if row["attempts"] != 1}
        self.assertEqual(again, {self.KILLED_WITH_CHILD: 2, self.KILLED_ALONE: 2})

    def test_attempts_wait_for_those_that_outlive_their_worker(self) -> None:
        first, second = self.KILLED_WITH_CHILD, self.KILLED_ALONE
        of = {name: [line for line in self.log if line.startswith(name)] for name in (first, second)}
        self.assertEqual(of[first], [f"{first} {does}" for does in ("begins", "begins", "ends")])
        self.assertEqual(of[second], [f"{second} {does}" for does in ("begins", "goes", "ends", "begins", "ends")])

    def test_profiles_are_those_of_a_sequential_run(self) -> None:
        found = {path.name: path.read_bytes() for path in self.output.iterdir()}
        self.assertEqual(sorted(found), sorted(self.sequential.outputs))
        for name, content in self.sequential.outputs.items():
            self.assertTrue(found[name] == content, name)
        self.assertEqual(
            {Path(row["output"]).name: row["input"] for row in self.rows}.keys(), self.sequential.outputs.keys()
        )

    def test_the_store_is_that_of_a_sequential_run(self) -> None:
        expected = tree(self.sequential.store)
        self.assertGreater(sum(path.endswith("/elf") for path in expected), 200)
        found = tree(self.store)
        self.assertEqual(found.keys() ^ expected.keys(), set())
        self.assertEqual([path for path in found if found[path] != expected[path]], [])

    def test_objects_are_whole(self) -> None:
        objects = [path for path in self.store.rglob("elf") if path.is_file()]
        command = ["readelf", "--all", "--wide", *map(str, objects)]
        ran = subprocess.run(command, capture_output=True, check=True)
        self.assertEqual(ran.stderr, b"")
        self.assertEqual(ran.stdout.count(b"Build ID: "), len(objects))

    def test_nothing_else_is_left(self) -> None:
        self.assertEqual(list(self.scratch.iterdir()), [])
        hidden = {path.name for path in self.output.rglob(".*")} | {path.name for path in self.store.rglob(".*")}
        self.assertEqual(hidden, {".build-id"})

    def test_the_columns_of_the_table_are_these(self) -> None:
        counts = ["samples", "samples_jit", "samples_named", "named_percent"]
        counts += ["functions_loaded", "functions_touched", "functions_written", "warnings"]
        names = ["input", "output", "host", "status", "exit_code", "error", "attempts", "seconds", "worker"]
        types = dict.fromkeys([*names, *counts, "skipped", "summary"], "string")
        types |= dict.fromkeys(["exit_code", "attempts", *counts], "int64")
        types |= dict.fromkeys(["seconds", "named_percent"], "double")
        found = pyarrow.parquet.read_schema(self.table)
        self.assertEqual([(field.name, str(field.type)) for field in found], list(types.items()))
        self.assertEqual([field.name for field in found if not field.nullable], ["input", "status", "attempts"])

    def test_the_table_has_the_figures_of_the_summaries(self) -> None:
        for row in self.rows:
            summary = self.sequential.summaries[row["input"]]
            samples, functions = summary["samples"], summary["functions"]
            expected = {
                "samples": samples["total"],
                "samples_jit": samples["jit"],
                "samples_named": samples["named"],
                "named_percent": samples["named_percent"],
                "functions_loaded": functions["loaded"],
                "functions_touched": functions["touched"],
                "functions_written": functions["written"],
                "warnings": sum(it["count"] for it in summary["diagnostics"] if it["severity"] == "warning"),
            }
            self.assertEqual({key: row[key] for key in expected}, expected, row["input"])
            self.assertEqual(self.without_store(json.loads(row["summary"])), self.without_store(summary))
            self.assertGreater(row["seconds"], 0)
            self.assertRegex(row["worker"], r"^tls://127\.0\.0\.1:\d+$")

    def without_store(self, summary: dict) -> dict:
        return {key: value for key, value in summary.items() if key != "build_id_cache"}

    def test_the_table_names_the_host_as_perf_does(self) -> None:
        for row in self.rows:
            command = ["perf", "report", "--header-only", "-f", "-i", row["output"]]
            header = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            [host] = [line.split(" : ")[1] for line in header.splitlines() if line.startswith("# hostname :")] or [None]
            self.assertEqual(row["host"], host, row["input"])

    def test_perf_finds_the_objects_in_the_store(self) -> None:
        for name, expected in self.sequential.shown.items():
            [row] = [row for row in self.rows if row["input"] == str(recording(name))]
            profile = Path(row["output"])
            with tempfile.TemporaryDirectory() as nothing:
                self.assertNotEqual(shown(profile, Path(nothing)), expected, name)
            self.assertEqual(shown(profile, self.store), expected, name)
        self.assertEqual(sorted(self.sequential.shown), Sequential.SHOWN)

    def test_debuginfod_serves_the_store(self) -> None:
        link = next(path for path in (self.store / ".build-id").rglob("*") if path.is_symlink())
        build_id = link.parent.name + link.name
        with Debuginfod(self.store) as server:
            self.assertEqual(server.executable(build_id), (link / "elf").read_bytes())


class Debuginfod(contextlib.ExitStack):
    """A debuginfod server that only this machine can reach."""

    def __init__(self, served: Path) -> None:
        super().__init__()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        loopback = self.folder / "loopback.so"
        source = ROOT / "tests/external/programs/loopback.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", loopback, source], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = ["debuginfod", "-F", "-p", str(self.port), "-d", str(self.folder / "database"), str(served)]
        environment = os.environ | {"LD_PRELOAD": str(loopback), "HOME": str(self.folder)}
        nothing = subprocess.DEVNULL
        self.server = subprocess.Popen(command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing)
        self.callback(self.server.wait)
        self.callback(self.server.kill)

    def executable(self, build_id: str) -> bytes:
        found: list[bytes] = []
        # The client caches negative results, so each attempt uses a new cache.
        wait_for(lambda: self.server.poll() is not None or self.find(build_id, found), f"{build_id} is served")
        return found[0]

    def find(self, build_id: str, found: list[bytes]) -> bool:
        with tempfile.TemporaryDirectory(dir=self.folder) as cache:
            urls = f"http://[::1]:{self.port}/ http://127.0.0.1:{self.port}/"
            environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "DEBUGINFOD_URLS": urls}
            environment["DEBUGINFOD_CACHE_PATH"] = cache
            command = ["debuginfod-find", "executable", build_id]
            ran = subprocess.run(command, env=environment, capture_output=True, text=True)
            if ran.returncode == 0:
                found.append(Path(ran.stdout.strip()).read_bytes())
            return ran.returncode == 0


class Failures(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.scratch = self.folder / "scratch"
        self.table = self.folder / "table.parquet"

    def common(self, jitinject: Path = JITINJECT) -> list[str]:
        words = ["--table", self.table, "--scratch", self.scratch, "--jitinject", jitinject]
        return [str(word) for word in words]

    def copy(self, name: str, to: Path) -> Path:
        shutil.copytree(ROOT / "testdata" / name, to)
        return to

    def test_each_failure_costs_its_own_row(self) -> None:
        jitinject = program(self.folder / "jitinject", DEADLY)
        profiles = self.copy("wasmtime", self.folder / "profiles")
        for name in ("deadly", "slow"):
            shutil.copy(profiles / "perf.data", profiles / f"{name}.perf.data")
        (profiles / "garbage.perf.data").write_bytes(b"no profile" * 100)
        archive = self.folder / "archive.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for path in sorted((ROOT / "testdata/php82").iterdir()):
                packed.write(path, f"host/{path.name}")
        inside = f"zip://host/perf.data::file://{archive}"
        more = self.folder / "more"
        more.write_text(f"{inside}\n\n{self.folder}/missing\n")
        command = [sys.executable, FLEET, f"{profiles}/*.data", "--list", more, "--output", self.folder / "output"]
        command += ["--workers", "2", "--timeout", "10", "--retries", "1", *self.common(jitinject)]
        command = [str(word) for word in command]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        rows = {Path(row["input"]).name: row for row in rows_of(self.table)}
        found = {name: (row["status"], row["exit_code"], row["attempts"]) for name, row in rows.items()}
        expected = {
            "garbage.perf.data": ("failed", 1, 1),
            "slow.perf.data": ("timeout", None, 1),
            "deadly.perf.data": ("failed", None, 2),
            "perf.data": ("done", 0, 1),
            "archive.zip": ("done", 0, 1),
            "missing": ("failed", None, 0),
        }
        self.assertEqual(found, expected)
        self.assertIn("jitinject: error[JI140]: ", rows["garbage.perf.data"]["error"])
        self.assertIn("KilledWorker", rows["deadly.perf.data"]["error"])
        self.assertEqual(rows["archive.zip"]["input"], inside)
        self.assertEqual(rows["archive.zip"]["samples_named"], 198)
        for name in (name for name, (status, _, _) in expected.items() if status != "done"):
            self.assertIn(f"/{name}: ", ran.stderr)
        self.assertEqual(len(list((self.folder / "output").iterdir())), 2)
        self.assertEqual(list(self.scratch.iterdir()), [])

    def test_profiles_and_results_may_be_anywhere(self) -> None:
        memory = fsspec.filesystem("memory")
        self.addCleanup(memory.rm, "/", recursive=True)
        for name in ("node20-dir", "java17", "php82"):
            memory.put(str(ROOT / "testdata" / name), f"/in/{name}", recursive=True)
        memory.pipe("/in/garbage/perf.data", b"no profile")
        # A file of an earlier run that is not beside the profile any more.
        [profile] = fleet.find_profiles("memory://in/php82/perf.data")
        left = self.scratch / profile.name / "input/left.mlpd"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"torn")
        parts = [f"/out/.{name}.{32 * '0'}.part" for name in (f"{profile.name}.data", "another's")]
        for part in parts:
            memory.pipe(part, b"torn")
        with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
            command = ["memory://in", "--output", "memory://out", "--store", str(self.folder / "store")]
            command += ["--scheduler", cluster.scheduler_address, *self.common()]
            command[command.index(str(self.table))] = "memory://out/table.parquet"
            status, said = self.run_main(*command, "--", "--all")
        self.assertEqual(status, 1, said)
        with memory.open("/out/table.parquet") as file:
            rows = {row["input"]: row for row in pyarrow.parquet.read_table(file).to_pylist()}
        named = {name: row["samples_named"] for name, row in rows.items()}
        self.assertEqual(
            named,
            {
                "memory://in/garbage/perf.data": None,
                "memory://in/java17/perf.data": 537,
                "memory://in/node20-dir/perf.data": 105,
                "memory://in/php82/perf.data": 198,
            },
        )
        self.assertEqual(rows["memory://in/php82/perf.data"]["functions_written"], 78, "--all was passed on")
        self.assertNotIn("left.mlpd", rows["memory://in/php82/perf.data"]["summary"])
        outputs = {row["output"].removeprefix("memory:/") for row in rows.values() if row["output"]}
        self.assertEqual(set(memory.find("/out")), outputs | {"/out/table.parquet", parts[1]})
        for path in outputs:
            self.assertTrue(memory.cat(path).startswith(b"PERFILE2"))

    def run_main(self, *words: object) -> tuple[int, list[str]]:
        """The exit status and standard error of a run in this process. Standard output is in `printed`."""
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                status = fleet.main([str(word) for word in words])
            except SystemExit as exited:
                status = exited.code
        self.printed = printed.getvalue()
        return status, said.getvalue().splitlines()

    def test_unusable_outputs_are_reported_before_the_work(self) -> None:
        file, output = self.folder / "file", self.folder / "output"
        file.touch()
        output.mkdir()
        before = sorted(self.folder.rglob("*"))
        profile = recording("php82")
        self.enterContext(dask.config.set({"distributed.comm.timeouts.connect": "1s"}))
        for to, table, more, expected in [
            (output, file / "table.parquet", [], "can't write the table: FileExistsError: "),
            (output, output, [], "can't write the table: IsADirectoryError: "),
            (file, self.table, [], "can't write to the output: FileExistsError: "),
            (output, self.table, ["--scheduler", "nonsense"], "no scheduler: ValueError: "),
            (output, self.table, ["--scheduler", "tcp://127.0.0.1:9"], "no scheduler: OSError: "),
        ]:
            with self.subTest(expected):
                status, said = self.run_main(profile, "--output", to, "--table", table, *more)
                self.assertEqual((status, len(said)), (1, 1), said)
                self.assertTrue(said[0].startswith(f"fleet: {expected}"), said)
                self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_a_table_that_cannot_be_written_in_the_end_is_reported(self) -> None:
        table = self.folder / "tables/table.parquet"
        text = "#!/bin/sh\nrmdir {tables}; touch {tables}; exit 1\n"
        jitinject = program(self.folder / "jitinject", text, tables=table.parent)
        with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
            command = ["--scheduler", cluster.scheduler_address, "--output", self.folder / "output"]
            status, said = self.run_main(recording("php82"), *command, *self.common(jitinject), "--table", table)
        self.assertEqual(status, 1)
        self.assertIn("fleet: can't write the table: FileExistsError: ", said[-1])

    def test_a_scheduler_that_goes_costs_no_row(self) -> None:
        real = fleet.Client.map

        def map_and_lose(client: fleet.Client, *arguments: object, **options: object) -> list:
            futures = real(client, *arguments, **options)
            futures[1].cancel()
            return futures

        lost = unittest.mock.patch.object(fleet.Client, "map", map_and_lose)
        gone = unittest.mock.patch.object(fleet.Client, "run", side_effect=OSError("Timed out trying to connect"))
        with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
            with lost, gone:
                command = ["--scheduler", cluster.scheduler_address, "--output", self.folder / "output"]
                profiles = [recording("php82"), recording("wasmtime")]
                status, said = self.run_main(*profiles, *command, *self.common())
        self.assertEqual(status, 1)
        self.assertEqual([row["status"] for row in rows_of(self.table)], ["done", "failed"])
        self.assertIn("wasmtime/perf.data: ConnectionError: the scheduler is gone", "".join(said))

    def test_profiles_with_fewer_named_than_asked_for_keep_their_figures(self) -> None:
        output = self.folder / "output"
        with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
            command = ["--scheduler", cluster.scheduler_address, "--output", output, *self.common()]
            status, said = self.run_main(recording("node20-nomono"), *command, "--", "--fail-under", "99")
        self.assertEqual((status, len(said)), (1, 1))
        self.assertIn("fleet: fewer-named: ", said[0])
        [row] = rows_of(self.table)
        self.assertEqual((row["status"], row["exit_code"]), ("fewer-named", 3))
        self.assertEqual((row["samples_jit"], row["samples_named"]), (239, 234))
        self.assertEqual([str(path) for path in output.iterdir()], [row["output"]])
        self.assertRegex(self.printed, r"^fleet: 1 profile in .*: 0 done, 1 with fewer named than asked for, 0 failed")

    def test_names_in_a_list_may_have_any_bytes(self) -> None:
        names = self.folder / "names"
        names.write_bytes(b"caf\xe9/perf.data\n\n")
        options = argparse.Namespace(list=str(names), profiles=["first"])
        self.assertEqual(fleet.listed(options), ["first", "caf\udce9/perf.data"])

    def test_only_what_belongs_to_a_profile_is_fetched(self) -> None:
        archive = self.folder / "archive.zip"
        wanted = ["perf.data", "jit-1.dump", "perf-1.map", "log.mlpd", ".debug/jit/java-1/jit-2.dump", "dumps/jit-5.dump"]
        other = ["secret", "core", "deep/jit-3.dump", ".debug/jit/java-1/perf.so", ".debug/jit/a/b/jit-4.dump", "dumps/notes"]
        with zipfile.ZipFile(archive, "w") as packed:
            for name in wanted + other:
                packed.writestr(f"host/{name}", name)
        [profile] = fleet.find_profiles(f"zip://host/perf.data::file://{archive}")
        scratch = self.folder / "scratch"
        self.assertEqual(self.fetch(profile, scratch), [])
        self.assertEqual(files(scratch), {name: name.encode() for name in wanted})

    def fetch(self, profile: "fleet.Profile", scratch: Path, **room: object) -> list[str]:
        """Fetches a profile; returns the skipped files with their reasons."""
        skipped: list[str] = []
        room = fleet.Room(**{"bytes": 1 << 20, **room})
        fetched = fleet.fetch(profile, scratch, room, lambda path, reason: skipped.append(f"{path} {reason}"))
        self.assertEqual(fetched, scratch / "perf.data")
        return skipped

    def in_memory(self, contents: dict[str, bytes]) -> "fleet.Profile":
        """A profile among files in other storage."""
        memory = fsspec.filesystem("memory")
        self.addCleanup(memory.rm, "/", recursive=True)
        for name, content in contents.items():
            memory.pipe(f"/host/{name}", content)
        [profile] = fleet.find_profiles("memory://host/perf.data")
        return profile

    def test_bytes_beyond_the_limit_are_not_fetched(self) -> None:
        contents = {"perf.data": 10 * b"p", "jit-1.dump": 10 * b"1", "jit-2.dump": 60 * b"2", "jit-3.dump": 20 * b"3"}
        profile = self.in_memory(contents)
        skipped = self.fetch(profile, self.folder / "a", bytes=50)
        self.assertEqual(sorted(files(self.folder / "a")), ["jit-1.dump", "jit-3.dump", "perf.data"])
        [reason] = skipped
        self.assertIn("/host/jit-2.dump is too large: 30 bytes of what is fetched for a profile are left", reason)
        with self.assertRaisesRegex(fleet.Unusable, "perf.data is too large"):
            self.fetch(profile, self.folder / "b", bytes=9)

    def test_storage_that_lies_about_sizes_is_not_believed(self) -> None:
        class Lying(Memory):
            def info(self, path: str, **more: object) -> dict:
                return super().info(path, **more) | {"size": 1}

            def ls(self, path: str, detail: bool = True, **more: object) -> list:
                return [entry | {"size": 1} for entry in super().ls(path, detail=True, **more)]

        honest = self.in_memory({"perf.data": b"p", "jit-1.dump": 100 * b"1", "jit-2.dump": b"2"})
        place = fleet.Place(Lying(skip_instance_cache=True), honest.place.path, honest.place.url)
        skipped = self.fetch(fleet.Profile(place, is_folder=False), self.folder / "a", bytes=50)
        self.assertEqual(files(self.folder / "a"), {"perf.data": b"p", "jit-2.dump": b"2"})
        self.assertIn("jit-1.dump is too large: 49 bytes", "".join(skipped))

    def test_files_beyond_the_limit_are_left_out_and_counted(self) -> None:
        self.enterContext(unittest.mock.patch.object(fleet, "MAX_FETCHED", 4))
        profile = self.in_memory({"perf.data": b"p"} | {f"perf-{pid}.map": b"m" for pid in range(1, 8)})
        skipped = self.fetch(profile, self.folder / "a", files=4)
        names = ["perf-1.map", "perf-2.map", "perf-3.map", "perf.data"]
        self.assertEqual(sorted(files(self.folder / "a")), names)
        self.assertEqual(skipped, ["/host has 4 more files than the 4 that are fetched for a profile"])

    def test_what_is_late_is_not_fetched(self) -> None:
        profile = self.in_memory({"perf.data": b"p"})
        with self.assertRaises(fleet.TimeIsUp):
            self.fetch(profile, self.folder / "a", deadline=time.monotonic() - 1)

    def test_names_that_no_file_can_have_cost_that_file(self) -> None:
        names = [f"jit-{300 * '1'}.dump", "jit-\0.dump", "jit-\ud800.dump", ".debug/jit", "jit-1.dump/jit-2.dump"]

        class Strange(Memory):
            """An object storage, where a name may be the start of another."""

            store: dict = {}

            def ls(self, path: str, detail: bool = True, **_: object) -> list:
                found = ["/host/perf.data", *(f"/host/{name}" for name in ["jit-1.dump", *names, "jit-9.dump"])]
                return [{"name": name, "type": "file", "size": 1} for name in found]

            def info(self, path: str, **_: object) -> dict:
                return {"name": path, "type": "file", "size": 1}

            def open(self, path: str, mode: str = "rb", **_: object) -> io.BytesIO:
                return io.BytesIO(b"x")

            def isdir(self, path: str) -> bool:
                return False

        place = fleet.Place(Strange(skip_instance_cache=True), "/host/perf.data", "strange://host/perf.data")
        skipped = self.fetch(fleet.Profile(place, is_folder=False), self.folder / "a")
        self.assertEqual(set(files(self.folder / "a")), {"perf.data", "jit-1.dump", "jit-9.dump"})
        wanted = [name for name in names if name != ".debug/jit"]
        self.assertEqual(
            sorted(skipped), sorted(f"/host/{name} has a name that no local file can have" for name in wanted)
        )

    def test_names_without_an_encoding_cost_no_other_profile(self) -> None:
        memory = fsspec.filesystem("memory")
        self.addCleanup(memory.rm, "/", recursive=True)
        for path in (ROOT / "testdata/php82").iterdir():
            memory.pipe(f"/in/php82/{path.name}", path.read_bytes())
        memory.pipe("/in/\ud800/perf.data", b"no profile")
        memory.pipe(f"/in/{300 * 'x'}.perf.data", b"no profile")
        status, said = self.run_here("memory://in")
        self.assertEqual(status, 1, said)
        became = sorted((row["status"], row["attempts"]) for row in rows_of(self.table))
        self.assertEqual(became, [("done", 1), ("failed", 1), ("failed", 1)])

    def run_here(self, *words: object) -> tuple[int, list[str]]:
        """A run with one worker in this process, because some storage exists only here."""
        with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
            common = ["--scheduler", cluster.scheduler_address, "--output", self.folder / "output", *self.common()]
            at = words.index("--") if "--" in words else len(words)
            return self.run_main(*words[:at], *common, *words[at:])

    def test_links_and_special_files_are_skipped_in_local_folders(self) -> None:
        host = self.copy("php82", self.folder / "profiles/host")
        other = self.copy("php82", self.folder / "other")
        planted = self.folder / "profiles/planted"
        planted.mkdir()
        os.mkfifo(planted / "fifo.perf.data")
        (planted / "perf.data").symlink_to(other / "perf.data")
        (planted / "folder").symlink_to(other)
        (planted / "harmless").symlink_to(other / "perf.data")
        os.mkfifo(host / "jit-1.dump")
        (host / "jit-2.dump").symlink_to(other / "perf.data")
        (host / "log.mlpd").symlink_to("/dev/zero")
        (host / ".debug").mkdir()
        (host / ".debug/jit").symlink_to(other)
        status, said = self.run_here(self.folder / "profiles")
        self.assertEqual(status, 0, said)
        rows = {Path(row["input"]).relative_to(self.folder): row for row in rows_of(self.table)}
        became = {str(path): (row["status"], row["error"]) for path, row in rows.items()}
        expected = {
            "profiles/host/.debug/jit": ("skipped", "is a symbolic link"),
            "profiles/host/perf.data": ("done", None),
            "profiles/planted/fifo.perf.data": ("skipped", "is not a regular file"),
            "profiles/planted/folder": ("skipped", "is a symbolic link"),
            "profiles/planted/perf.data": ("skipped", "is a symbolic link"),
        }
        self.assertEqual(became, expected)
        done = rows[Path("profiles/host/perf.data")]
        skipped = {
            f"{host}/.debug/jit is reached by a symbolic link",
            f"{host}/jit-1.dump is not a regular file",
            f"{host}/jit-2.dump is a symbolic link",
            f"{host}/log.mlpd is a symbolic link",
        }
        self.assertEqual(set(done["skipped"].splitlines()), skipped)
        self.assertEqual(done["samples_named"], 198)
        for line in [*skipped, f"{planted}/folder: is a symbolic link", f"{planted}/fifo.perf.data: is not a regular"]:
            self.assertIn(line, "\n".join(said))
        self.assertIn(" 1 profile in ", self.printed)
        self.assertIn(", 4 skipped, ", self.printed)

    def test_patterns_lead_through_no_link(self) -> None:
        self.copy("php82", self.folder / "other")
        (self.folder / "in").mkdir()
        (self.folder / "in/host").symlink_to(self.folder / "other")
        (self.folder / "in/perf.data").symlink_to(self.folder / "other/perf.data")
        for pattern, links in [("in/*", ["in/host", "in/perf.data"]), ("in/*/perf.data", []), ("*/*/*", [])]:
            skipped: list[str] = []
            with self.assertRaises(FileNotFoundError):
                fleet.find_profiles(f"{self.folder}/{pattern}", lambda url, reason: skipped.append(f"{url} {reason}"))
            self.assertEqual(skipped, [f"{self.folder}/{link} is a symbolic link" for link in links], pattern)

    def test_a_profile_that_is_not_a_file_fails_at_once(self) -> None:
        os.mkfifo(self.folder / "fifo")
        (self.folder / "link").symlink_to(recording("php82"))
        folder = self.copy("node20-dir", self.folder / "folder")
        [data] = [path.parent for path in folder.rglob("data")]
        (data / "kcore_dir").symlink_to("/etc")
        began = time.monotonic()
        status, said = self.run_here(self.folder / "fifo", self.folder / "link", data)
        self.assertEqual(status, 1, said)
        self.assertLess(time.monotonic() - began, PATIENCE / 4)
        errors = {Path(row["input"]).name: row["error"] for row in rows_of(self.table)}
        self.assertIn("is not a regular file", errors["fifo"])
        self.assertIn("is a symbolic link", errors["link"])
        self.assertIn(f"jitinject: error[JI400]: {data}/kcore_dir: ", errors[data.name])

    def test_a_profile_does_not_open_the_dumps_of_others(self) -> None:
        """A profile names the dump of another tenant, which only its owner can read. The owner runs this."""
        tenant = self.folder / "tenant"
        tenant.mkdir()
        dump = ROOT / "testdata/php82/jit-26234.dump"
        # The name fits into the recorded name and its padding.
        secret = Path(tempfile.mkdtemp(dir="/tmp", prefix="")).rename(f"/tmp/{os.getpid() % 1000:03}")
        self.addCleanup(shutil.rmtree, secret)
        shutil.copy(dump, secret)
        (secret / dump.name).chmod(0o600)
        recorded, planted = (path.encode().ljust(24, b"\0") for path in (f"/tmp/{dump.name}", f"{secret}/{dump.name}"))
        profile = recording("php82").read_bytes()
        self.assertEqual((profile.count(recorded), len(planted)), (1, 24))
        (tenant / "perf.data").write_bytes(profile.replace(recorded, planted))
        status, said = self.run_here(tenant)
        self.assertEqual(status, 0, said)
        [row] = rows_of(self.table)
        self.assertEqual((row["samples_named"], row["samples_jit"]), (0, row["samples_jit"]))
        missing = [it["file"] for it in json.loads(row["summary"])["diagnostics"] if it["code"] == "JI214"]
        self.assertEqual(missing, [f"{secret}/{dump.name}"])

    def test_the_time_limit_is_minutes(self) -> None:
        options = fleet.parse(["x", "--output", "o", "--table", "t"])
        self.assertTrue(60 <= options.timeout <= 900, options.timeout)

    def test_hostile_names_lead_nowhere_else(self) -> None:
        hostile = ["/host/../../jit-1.dump", "/jit-2.dump", "/host/a/../../../jit-3.dump", "/host/./jit-4.dump"]

        class Hostile(Memory):
            store: dict = {}

            def ls(self, path: str, detail: bool = True, **_: object) -> list:
                return [{"name": name, "type": "file", "size": 1} for name in ["/host/jit-0.dump", *hostile]]

            def info(self, path: str, **_: object) -> dict:
                return {"name": path, "type": "file", "size": 1}

            def open(self, path: str, mode: str = "rb", **_: object) -> io.BytesIO:
                return io.BytesIO(path.encode())

        place = fleet.Place(Hostile(skip_instance_cache=True), "/host/perf.data", "hostile://host/perf.data")
        skipped = self.fetch(fleet.Profile(place, is_folder=False), self.folder / "a/b/c")
        self.assertEqual(len(skipped), len(hostile))
        self.assertEqual(set(files(self.folder)), {"a/b/c/perf.data", "a/b/c/jit-0.dump"})

    def test_no_path_leads_out_of_its_folder(self) -> None:
        for path in ("/in/../x", "/in/./x", "/in//x", "/in", "/in/", "/other/x", "/in/x/../../y", "/in/a\0b", "/inx"):
            self.assertIsNone(fleet.safe_path("/in", path), path)
        self.assertEqual(str(fleet.safe_path("/in", "/in/a/b")), "a/b")
        self.assertEqual(str(fleet.safe_path("", "a/b")), "a/b")

    def test_names_follow_from_addresses_alone_and_differ(self) -> None:
        paths = [
            "/a/b/perf.data",
            "/a/b-perf.data",
            "/a/b/perf_data",
            "/c/b/perf.data",
            "/\u00e4/\n/perf.data",
            "/" + 300 * "x",
            "/in/aaaaaaaaaa." + 79 * "b",
            "/in/" + 85 * "b" + "__",
            "/\u00e4/\u00f6",
        ]
        places = [fleet.Place(fsspec.filesystem("file"), path, path) for path in paths]
        names = [fleet.Profile(place, is_folder=False).name for place in places]
        self.assertEqual(len(set(names)), len(paths))
        self.assertEqual(names[0], "b-perf.data-33a523d0417f4dbc")
        self.assertEqual(names[6], 79 * "b" + "-f1af47b3959898ae")
        self.assertEqual(names[7], 80 * "b" + "-c344ae96c428e61e")
        self.assertEqual(names[8], "profile-e82cdc90d457a6e8")
        for name in names:
            self.assertRegex(name, r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")

    def test_a_header_that_is_cut_or_lies_names_no_host(self) -> None:
        profile = self.folder / "perf.data"

        def host(section: bytes, where: int = 120, size: int = 16, data_size: int = 0) -> str | None:
            header = b"PERFILE2" + struct.pack("<12Q", 104, 0, 0, 0, 104, data_size, 0, 0, 1 << 3, 0, 0, 0)
            profile.write_bytes(header + struct.pack("<QQ", where, size) + section)
            return fleet.host_of(profile)

        named = struct.pack("<I", 12) + b"build-7\0\0\0\0\0"
        self.assertEqual(host(named), "build-7")
        self.assertEqual(host(named, size=2), None)
        self.assertEqual(host(named, size=8), "buil")
        self.assertEqual(host(named, where=2**62), None)
        self.assertEqual(host(named, where=2**64 - 1), None)
        self.assertEqual(host(named, data_size=2**63), None)
        self.assertEqual(host(named, data_size=1000), None)
        for length in range(4):
            self.assertEqual(host(named[:length]), None)
        for length in range(120):
            profile.write_bytes(profile.read_bytes()[:-1])
            self.assertEqual(fleet.host_of(profile), None)

    def test_an_output_appears_whole_or_not_at_all(self) -> None:
        class Full(Memory):
            store: dict = {}

            def put_file(self, lpath: str, rpath: str, **_: object) -> None:
                self.pipe_file(rpath, Path(lpath).read_bytes()[:10])
                raise OSError("no space left")

        local = self.folder / "profile"
        local.write_bytes(b"x" * 100)
        full = Full(skip_instance_cache=True)
        with self.assertRaises(OSError):
            fleet.publish(local, fleet.Place(full, "/out/profile", "full://out/profile"))
        self.assertEqual(full.find("/"), [])

    def test_profiles_that_are_folders_are_published_whole(self) -> None:
        memory = fsspec.filesystem("memory")
        self.addCleanup(memory.rm, "/", recursive=True)
        contents = {"data": b"records", "kcore_dir/kcore": b"code", "kcore_dir/modules": b"names"}
        for name, content in contents.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(content)
        fleet.publish(self.folder, fleet.Place.parse("memory://out/profile.data"))
        self.assertEqual(
            {path: memory.cat(path) for path in memory.find("/out")},
            {f"/out/profile.data/{name}": content for name, content in contents.items()},
        )

    def test_names_need_not_be_text(self) -> None:
        name = os.fsencode(self.folder) + b"/\xff\x1b[m.perf.data"
        Path(os.fsdecode(name)).write_bytes(b"no profile")
        command = [
            sys.executable,
            FLEET,
            self.folder,
            "--output",
            self.folder / "output",
            "--workers",
            "1",
            *self.common(),
        ]
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(ran.returncode, 1, ran.stderr)
        [row] = rows_of(self.table)
        self.assertEqual((row["input"], row["exit_code"]), (f"{self.folder}/\\udcff\x1b[m.perf.data", 1))
        self.assertIn(r"\xdcff\x1b[m.perf.data: jitinject: error[JI140]: ", ran.stderr)
        self.assertTrue(ran.stderr.rstrip("\n").isprintable(), ran.stderr)

    def test_addresses_are_made_as_they_were_given(self) -> None:
        for folder, expected in [
            ("memory://in", "memory://in/host/perf.data"),
            ("memory://in/", "memory://in/host/perf.data"),
            ("memory://in/*/perf.data", "memory://in/host/perf.data"),
            ("dir://host::memory://in", "dir://host/perf.data::memory://in"),
        ]:
            memory = fsspec.filesystem("memory")
            self.addCleanup(memory.rm, "/", recursive=True)
            memory.pipe("/in/host/perf.data", b"")
            with self.subTest(folder):
                self.assertEqual([profile.place.url for profile in fleet.find_profiles(folder)], [expected])

    def test_wrong_usage_is_reported(self) -> None:
        place = ["--output", "memory://out", "--table", "memory://table"]
        wrong = [[], place, ["x"], ["x", *place, "--timeout", "0"], ["x", *place, "--workers", "0"]]
        wrong += [[*place, "--list", f"{self.folder}/missing"], ["x", *place[:3], "nowhere://x"]]
        wrong += [["x", *place, "--store", "s3://x/y"], ["x", *place, "--scratch", "memory://x"]]
        for arguments in wrong:
            status, said = self.run_main(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertTrue(said, arguments)

    def test_folders_may_be_given_as_addresses_of_files(self) -> None:
        place = ["--output", "memory://out", "--table", "memory://table"]
        options = fleet.parse(["x", *place, "--store", "file:///srv/debug", "--scratch", "/srv/a:b"])
        self.assertEqual((options.store, options.scratch), (Path("/srv/debug"), Path("/srv/a:b")))


if __name__ == "__main__":
    unittest.main()
