"""What process this is: neither IPython, nor one of its kernels, unless IPython says so."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from support.client import job_status

from gpulayer.client.job import Job
from gpulayer.client.surroundings import command_text, in_ipython, in_notebook
from gpulayer.states import JobState

KERNEL, TERMINAL = SimpleNamespace(kernel=object()), SimpleNamespace()


@pytest.mark.parametrize(("shell", "ipython", "notebook"), [(None, False, False), (TERMINAL, True, False), (KERNEL, True, True)])
def test_where_it_runs(monkeypatch, shell, ipython, notebook):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert (in_ipython(), in_notebook()) == (ipython, notebook)
    assert command_text("jobs") == ("%gpulayer jobs" if ipython else "gpulayer jobs")


def test_a_notebook_keeps_nothing_of_a_handle_that_goes_stale(monkeypatch):
    job = Job(None, job_status(JobState.QUEUED, waiting_for="no worker"))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: KERNEL))
    assert job._repr_mimebundle_() == {"text/plain": "<Job j1 'train'>"}
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: TERMINAL))
    assert job._repr_mimebundle_() == {}
    assert "queued: no worker" in repr(job)
