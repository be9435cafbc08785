"""A zygote's own process: what it loads, what it refuses, how it dies. How ranks run in one is in `test_launchers.py`."""

from __future__ import annotations

import os
import signal
import textwrap

import pytest
from support.runtime import WatchedProcess

from gpulayer.errors import Interrupted
from gpulayer.runtime.process import Keeper
from gpulayer.runtime.process_tree import parent_of
from gpulayer.runtime.zygote import Zygote


@pytest.fixture
def keeper(packages):
    keeper = Keeper.start()
    yield keeper
    keeper.close()


def wait(zygote):
    return zygote.wait_ready(lambda: False)


THREAD = """
    import threading
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    """
BAD = [
    pytest.param(THREAD, "it started 1 threads", id="thread"),
    pytest.param("1 / 0", "ZeroDivisionError: division by zero", id="raises"),
]


@pytest.mark.parametrize(("source", "found"), BAD)
def test_a_module_that_unfits_a_parent_is_named_and_asked_for_no_more(keeper, packages, source, found, caplog):
    (packages / "sound.py").write_text("import os; BLAS = os.environ['OPENBLAS_NUM_THREADS']")
    (packages / "unfit.py").write_text(textwrap.dedent(source))
    zygote = Zygote(keeper, ("sound", "unfit"))
    refusal = wait(zygote)
    assert refusal == f"its zygote can't be a parent of ranks: unfit: {found}"
    assert refusal.partition("ranks: ")[2] in caplog.text
    (packages / "unfit.py").write_text("")
    assert wait(zygote) == refusal
    zygote.close()


def test_modules_are_loaded_with_one_thread_and_the_zygote_is_below_the_keeper(keeper, packages):
    (packages / "sound.py").write_text("import os; assert os.environ['OPENBLAS_NUM_THREADS'] == '1'")
    zygote = Zygote(keeper, ("sound",))
    assert wait(zygote) is None
    assert zygote.pid is not None
    watched = WatchedProcess(zygote.pid)
    assert parent_of(zygote.pid) == keeper.pid
    zygote.close()
    assert watched.has_ended(10)
    watched.close()


def test_what_is_to_be_done_at_the_end_of_a_job_is_not_done_at_its_own(keeper, packages):
    (packages / "sound.py").write_text(f"import atexit, os; atexit.register(os.mkdir, {str(packages / 'done')!r})")
    zygote = Zygote(keeper, ("sound",))
    assert wait(zygote) is None
    assert zygote.pid is not None
    watched = WatchedProcess(zygote.pid)
    zygote.close()
    assert watched.has_ended(10)
    watched.close()
    assert not (packages / "done").exists()


def test_the_next_after_one_that_died_says_so_and_the_one_after_finds_another(keeper, packages):
    (packages / "sound.py").write_text("")
    zygote = Zygote(keeper, ("sound",))
    assert wait(zygote) is None
    assert zygote.pid is not None
    watched = WatchedProcess(zygote.pid)
    os.kill(zygote.pid, signal.SIGKILL)
    assert watched.has_ended(10)
    with zygote._changed:
        assert zygote._changed.wait_for(lambda: zygote.pid is None, 10)
    with pytest.raises(Interrupted, match="its zygote has died"):
        zygote.open_task(lambda ended: None, lambda: None)
    assert wait(zygote) == "its zygote has died"
    assert wait(zygote) is None
    zygote.close()
    watched.close()


def test_one_that_ends_before_it_is_ready(keeper, packages):
    (packages / "ends.py").write_text("import os; os._exit(3)")
    zygote = Zygote(keeper, ("ends",))
    assert wait(zygote) == "its zygote ended before it was ready"
    zygote.close()


def test_one_that_is_deaf_as_it_imports_ends_with_its_keeper(packages):
    os.mkfifo(packages / "pipe")
    (packages / "deaf.py").write_text(
        f"import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); pipe = open({str(packages / 'pipe')!r}, 'w');"
        " pipe.write(str(os.getpid())); pipe.flush(); signal.pause()"
    )
    keeper = Keeper.start()
    zygote = Zygote(keeper, ("deaf",))
    zygote.start()
    with (packages / "pipe").open("rb", buffering=0) as pipe:
        watched = WatchedProcess(int(pipe.read(20)))
    zygote.close()
    keeper.close()
    assert watched.has_ended()
    watched.close()


def test_whoever_waits_may_give_up(keeper, packages):
    os.mkfifo(packages / "pipe")
    (packages / "slow.py").write_text(f"open({str(packages / 'pipe')!r}).read()")
    zygote = Zygote(keeper, ("slow",))
    assert zygote.wait_ready(lambda: True) == "nobody waited for its zygote any longer"
    zygote.close()
