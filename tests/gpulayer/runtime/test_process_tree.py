from __future__ import annotations

import os
import signal
import subprocess
import sys

from gpulayer.runtime.process_tree import catches_signal, find_descendants, ignores_signal, is_descendant, parent_of


def test_descent():
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        sleeper = int(shell.stdout.readline())
        assert parent_of(sleeper) == shell.pid
        assert find_descendants(shell.pid) == [sleeper]
        assert find_descendants(os.getpid()).index(shell.pid) < find_descendants(os.getpid()).index(sleeper)
        assert is_descendant(sleeper, os.getpid())
        assert not is_descendant(os.getpid(), sleeper)
        assert not is_descendant(os.getppid(), os.getpid())
        os.kill(sleeper, signal.SIGKILL)
    assert parent_of(sleeper) is None
    assert not is_descendant(sleeper, os.getpid())


def test_signals_that_a_process_catches_or_ignores():
    source = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert catches_signal(process.pid, signal.SIGTERM)
        assert not catches_signal(process.pid, signal.SIGUSR2)
        assert ignores_signal(process.pid, signal.SIGUSR1)
        assert not ignores_signal(process.pid, signal.SIGTERM)
        process.stdin.close()
    assert not catches_signal(process.pid, signal.SIGTERM)
