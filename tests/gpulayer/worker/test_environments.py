"""Environments of requirements: built once, used again, never half there. Real interpreters and installers, local wheels."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.small_wheel import local_requirements, make_wheel

from gpulayer.errors import Interrupted, Unsupported
from gpulayer.worker import environment_build, environments
from gpulayer.worker.environment_build import requirement_names
from gpulayer.worker.environments import EnvironmentCache
from gpulayer.worker.interpreter_facts import FactsOfInterpreters

WAIT_SECONDS = 60.0
INTERPRETERS = FactsOfInterpreters(dict(os.environ))


class Place:
    """A cache, wheels, and what was said."""

    def __init__(self, folder: Path, **options) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.environment = {**os.environ, "GPULAYER_TOKEN": "secret"}
        self.interpreters = INTERPRETERS
        self.cache = self.another(**options)
        self.said: list[str] = []

    def another(self, **options) -> EnvironmentCache:
        return EnvironmentCache(self.folder / "environments", sys.executable, self.environment, self.interpreters, **options)

    def use(self, *lines: str, stopped=None, cache=None):
        text = local_requirements(self.wheels, *lines)
        file = self.folder / "requirements.txt"
        file.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return (cache or self.cache).use(digest, file, stopped=stopped or threading.Event(), say=self.said.append)

    def built(self) -> list[str]:
        return sorted(entry.name for entry in (self.folder / "environments").iterdir() if entry.suffix != ".lock")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def wait_until_gone(pid: str) -> None:
    """A process that was killed closes its files a moment before it is gone."""
    waiting = threading.Event()
    for _ in range(int(WAIT_SECONDS / 0.02)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        waiting.wait(0.02)
    raise AssertionError(f"{pid} is still there: {state}")


def fake_build(monkeypatch, act=lambda folder: None) -> list[Path]:
    """Let building be quick where installing is not the matter; returns the folders that were built."""
    built: list[Path] = []

    def build(folder: Path, requirements: Path, **options) -> None:
        built.append(folder)
        folder.mkdir()
        act(folder)

    monkeypatch.setattr(environments, "build_environment", build)
    return built


def test_it_has_what_was_asked_for_on_top_of_what_the_worker_has(place: Place) -> None:
    make_wheel(place.wheels, "smallone", "1.5", requires=("smalltwo>=2", "msgspec"))
    make_wheel(place.wheels, "smalltwo", "2.1")
    with place.use("smallone") as first:
        assert run(first.python, "import smallone, smalltwo; print(smallone.VERSION, smalltwo.VERSION)") == "1.5 2.1"
        # The worker's own, editable ones too: nothing of them is fetched again.
        assert run(first.python, "import msgspec, gpulayer; print(gpulayer.__file__)") == str(Path(sys.modules["gpulayer"].__file__))
        assert run(first.python, "import sys; print(sys.prefix)") == str(first.folder)
        assert first.build_seconds > 0
    assert place.said == ["Building the environment of the job's requirements."]
    with place.use("smallone") as again:
        assert (again.python, again.build_seconds) == (first.python, None)
    assert len(place.said) == 1


def test_a_version_that_is_asked_for_comes_before_the_workers(place: Place) -> None:
    make_wheel(place.wheels, "iniconfig", "99.5")
    before = run(sys.executable, "from importlib.metadata import version; print(version('iniconfig'))")
    with place.use("iniconfig==99.5") as environment:
        assert run(environment.python, "import iniconfig; print(iniconfig.VERSION)") == "99.5"
        assert place.interpreters.of(environment.python).packages["iniconfig"] == "99.5"
    # The worker's own packages are as they were.
    assert run(sys.executable, "from importlib.metadata import version; print(version('iniconfig'))") == before


def test_what_can_not_be_installed_is_named_with_its_line_and_nothing_is_left(place: Place) -> None:
    make_wheel(place.wheels, "smallone", "1.5", requires=("gone-one",))
    with pytest.raises(Unsupported, match="could not be built") as refused, place.use("--pre", "never_published == 9.9"):
        pass
    assert refused.value.asked == "never_published == 9.9 (line 4 of the requirements)"
    assert "No matching distribution found for never_published==9.9" in refused.value.found
    with pytest.raises(Unsupported) as refused, place.use("smallone"):
        pass
    assert refused.value.asked == "gone-one, which one of the requirements asks for"
    assert place.built() == []


@pytest.mark.parametrize(
    ("lines", "asked", "found"),
    [
        (
            ["ERROR: Invalid requirement: 'two words' (from line 2 of requirements.txt)"],
            "two, which one of the requirements asks for",
            "ERROR: Invalid requirement: 'two words' (from line 2 of requirements.txt)",
        ),
        (["noise", "ERROR: Failed to build 'mine'", "  more"], "mine>1 (line 1 of the requirements)", "ERROR: Failed to build 'mine'"),
        (
            ["  × No solution found", "  ╰─▶ Because mine was not found and you require mine>1, they are"],
            "mine>1 (line 1 of the requirements)",
            "× No solution found / ╰─▶ Because mine was not found and you require mine>1, they are",
        ),
        (
            ["ERROR: THESE PACKAGES DO NOT MATCH", "    mine>1 from https://example.org/mine.whl#sha256=1:", "        Expected sha256 0"],
            "mine>1 (line 1 of the requirements)",
            "ERROR: THESE PACKAGES DO NOT MATCH",
        ),
        (
            ["ERROR: Cannot install mine>1, mine<1 and other because"],
            "mine>1 (line 1 of the requirements)",
            "ERROR: Cannot install mine>1, mine<1 and other because",
        ),
        (
            ["ERROR: failed with url: https://me:s3cret@example.org/x?token=s3cret"],
            None,
            "ERROR: failed with url: https://****@example.org/x?****",
        ),
        (["something else"], None, "something else"),
        ([], None, "the installer ended with code 2"),
    ],
)
def test_what_an_installer_said_is_told_in_short(lines, asked, found) -> None:
    error = environment_build._failed(lines, "mine>1\n", 2)
    assert (error.asked, error.found) == (asked, found)


def test_a_requirement_with_a_password_is_told_without_it() -> None:
    error = environment_build._failed(["ERROR: Failed to build 'mine'"], "mine @ https://me:s3cret@example.org/mine.zip\n", 1)
    assert error.asked == "mine @ https://****@example.org/mine.zip (line 1 of the requirements)"


def test_hashes_are_held(place: Place) -> None:
    wheel = make_wheel(place.wheels, "smallone", "1.5")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with place.use(f"smallone==1.5 --hash=sha256:{digest}") as environment:
        assert run(environment.python, "import smallone; print(smallone.VERSION)") == "1.5"
    with pytest.raises(Unsupported) as refused, place.use(f"smallone==1.5 --hash=sha256:{'0' * 64}"):
        pass
    assert refused.value.asked.startswith("smallone==1.5 --hash")


@pytest.mark.parametrize("name", ["PIP_USER", "PIP_PREFIX", "PIP_TARGET", "PIP_DRY_RUN", "PIP_IGNORE_INSTALLED"])
def test_it_is_filled_wherever_the_worker_installs_otherwise(place: Place, name: str) -> None:
    make_wheel(place.wheels, "smallone", "1.5", requires=("msgspec",))
    place.environment[name] = str(place.folder / "elsewhere") if name in ("PIP_PREFIX", "PIP_TARGET") else "1"
    with place.use("smallone") as environment:
        assert run(environment.python, "import smallone; print(smallone.VERSION)") == "1.5"


def test_the_variables_of_installers_reach_them_and_gpulayers_do_not(place: Place, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(environment_build, "_run", lambda argv, env, *rest: seen.append(env) or (1, []))
    place.environment["PIP_INDEX_URL"] = "https://example.org"
    with pytest.raises(Unsupported, match="could not be built"), place.use("x"):
        pass
    assert seen[0]["PIP_INDEX_URL"] == "https://example.org"
    assert "GPULAYER_TOKEN" not in seen[0]


@pytest.mark.parametrize(
    ("facts", "has_uv", "installer"),
    [
        ({"has_pip": True, "has_ensurepip": True}, True, ["venv", "pip"]),
        ({"has_pip": False, "has_ensurepip": True}, True, ["venv", "ensurepip", "pip"]),
        ({"has_pip": False, "has_ensurepip": False}, True, ["venv", "uv"]),
    ],
)
def test_the_installer_is_one_that_counts_the_workers_packages_where_there_is_one(tmp_path, monkeypatch, facts, has_uv, installer) -> None:
    ran: list[str] = []

    def pretend(argv, *rest):
        words = [word for word in argv if word in ("venv", "ensurepip", "pip") or word.endswith("/uv")]
        ran.append(Path(words[0]).name)
        (tmp_path / "new" / "lib" / "python3" / "site-packages").mkdir(parents=True, exist_ok=True)
        return 0, []

    monkeypatch.setattr(environment_build, "_run", pretend)
    monkeypatch.setattr(environment_build.shutil, "which", lambda name, path: "/bin/uv" if has_uv else None)
    (tmp_path / "requirements.txt").write_text("x\n")
    known = replace(INTERPRETERS.of(sys.executable), **facts)
    environment_build.build_environment(
        tmp_path / "new", tmp_path / "requirements.txt", python=sys.executable, facts=known, environment={}, stopped=threading.Event()
    )
    assert ran == installer


def test_without_any_installer_it_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(environment_build.shutil, "which", lambda name, path: None)
    (tmp_path / "requirements.txt").write_text("x\n")
    known = replace(INTERPRETERS.of(sys.executable), has_pip=False, has_ensurepip=False)
    with pytest.raises(Unsupported, match="neither pip nor ensurepip"):
        environment_build.build_environment(
            tmp_path / "new",
            tmp_path / "requirements.txt",
            python=sys.executable,
            facts=known,
            environment=dict(os.environ),
            stopped=threading.Event(),
        )


def test_a_stop_ends_the_installer_and_leaves_nothing(place: Place, monkeypatch) -> None:
    stopped = threading.Event()
    pids = place.folder / "pids"
    real = environment_build._run

    def hang(argv, env, cwd, stopping, held):
        if "venv" in argv:
            return real(argv, env, cwd, stopping, held)
        code = (
            "import os, subprocess; p = subprocess.Popen(['sleep', '600']);"
            f" print(os.getpid(), p.pid, file=open({str(pids)!r}, 'w'), flush=True); p.wait()"
        )
        threading.Thread(target=stop_when_there, daemon=True).start()
        return real([sys.executable, "-c", code], env, cwd, stopping, held)

    def stop_when_there() -> None:
        waiting = threading.Event()
        while not (pids.exists() and pids.read_text().endswith("\n")):
            waiting.wait(0.02)
        stopped.set()

    monkeypatch.setattr(environment_build, "_run", hang)
    with pytest.raises(Interrupted), place.use("x", stopped=stopped):
        pass
    for pid in pids.read_text().split():
        wait_until_gone(pid)
    assert place.built() == []


def test_what_an_installer_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import subprocess; print('done'); open({str(pid)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    assert environment_build._run([sys.executable, "-c", code], dict(os.environ), tmp_path, threading.Event(), None) == (0, ["done"])
    wait_until_gone(pid.read_text())


def test_many_that_want_it_at_once_get_one_that_was_built_once(place: Place, monkeypatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(folder: Path) -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)

    built = fake_build(monkeypatch, hold)
    got: list[tuple[str, bool]] = []

    def want(cache) -> None:
        with place.use("x", cache=cache) as environment:
            got.append((environment.python, environment.build_seconds is not None))

    # Another worker of this machine has a cache of its own on the same folder.
    threads = [threading.Thread(target=want, args=[cache]) for cache in (place.cache, place.cache, place.another())]
    for thread in threads:
        thread.start()
    assert begun.wait(WAIT_SECONDS)
    go_on.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert len(built) == 1
    assert len({python for python, _ in got}) == 1
    assert sorted(own for _, own in got) == [False, False, True]


def test_whoever_waits_for_another_to_build_can_be_stopped(place: Place, monkeypatch) -> None:
    begun, go_on, stopped = threading.Event(), threading.Event(), threading.Event()

    def hold(folder: Path) -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)

    fake_build(monkeypatch, hold)

    def want() -> None:
        with place.use("x"):
            pass

    builder = threading.Thread(target=want)
    builder.start()
    assert begun.wait(WAIT_SECONDS)
    stopped.set()
    with pytest.raises(Interrupted), place.use("x", stopped=stopped):
        pass
    go_on.set()
    builder.join(WAIT_SECONDS)


def test_what_a_builder_that_died_left_is_built_anew(place: Place, monkeypatch) -> None:
    fake_build(monkeypatch)
    with place.use("x") as whole:
        pass
    (whole.folder / "ready").unlink()
    (whole.folder / "half").write_text("")
    with place.use("x") as again:
        assert again.folder == whole.folder
        assert again.build_seconds is not None
        assert not (again.folder / "half").exists()


def test_an_installer_that_outlives_its_worker_keeps_others_out(tmp_path: Path) -> None:
    path, begun = tmp_path / "x.lock", tmp_path / "begun"
    lock = environments._open_lock(path)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.mkfifo(tmp_path / "end")
    code = f"open({str(begun)!r}, 'w').close(); open({str(tmp_path / 'end')!r}).read()"
    stopped = threading.Event()
    running = threading.Thread(
        target=environment_build._run, args=([sys.executable, "-c", code], dict(os.environ), tmp_path, stopped, lock)
    )
    running.start()
    with (tmp_path / "end").open("w"):  # opens once the installer reads it
        lock.close()  # as when the worker is killed
        with environments._open_lock(path) as another, pytest.raises(BlockingIOError):
            fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
    running.join(WAIT_SECONDS)
    with environments._open_lock(path) as another:
        fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_build_that_failed_is_tried_again_by_the_next(place: Place, monkeypatch) -> None:
    def fail(folder: Path) -> None:
        raise OSError("the disk is full")

    fake_build(monkeypatch, fail)
    with pytest.raises(OSError, match="full"), place.use("x"):
        pass
    assert place.built() == []
    fake_build(monkeypatch)
    with place.use("x") as environment:
        assert environment.build_seconds is not None


def test_the_least_lately_used_go_but_those_in_use_and_leftovers_always(tmp_path: Path, monkeypatch) -> None:
    place = Place(tmp_path, most=2)
    fake_build(monkeypatch)
    with contextlib.ExitStack() as using:
        names = {}
        for at, name in enumerate(("a", "b", "c")):
            with place.use(name) as environment:
                names[name] = environment.folder.name
                os.utime(environment.folder / "ready", (at, at))
                if name == "a":
                    using.enter_context(place.use(name))
                    os.utime(environment.folder / "ready", (0, 0))
        (tmp_path / "environments" / "unfinished").mkdir()
        (tmp_path / "environments" / "removed-1" / "deep").mkdir(parents=True)
        with place.use("d") as environment:
            names["d"] = environment.folder.name
        # Of four, two are over the limit: `a` is older than `b`, and in use.
        assert place.built() == sorted(names[name] for name in ("a", "c", "d"))
    with place.use("d"):
        pass
    assert len(place.built()) == 2


def test_it_is_told_apart_by_text_and_interpreter(place: Place) -> None:
    facts = place.interpreters.of(sys.executable)
    keys = {
        environments.environment_key("d1", "/a/python", facts),
        environments.environment_key("d2", "/a/python", facts),
        environments.environment_key("d1", "/b/python", facts),
        environments.environment_key("d1", "/a/python", replace(facts, python="3.99.0")),
        environments.environment_key("d1", "/a/python", replace(facts, tag="other")),
    }
    assert len(keys) == 5


def test_the_names_of_requirements() -> None:
    text = "--no-index\nSmall_One[x]==1.0 ; python_version > '3'\nx @ https://example.org/x.whl\nx\ngit+https://example.org/y.git\n"
    assert requirement_names(text) == ("Small_One", "x")
