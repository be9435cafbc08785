"""The metric sender: what is sent when, what is told of what is missing, and how it ends."""

from __future__ import annotations

import threading

import pytest

from gpulayer.errors import AttemptLost, InvalidSpec
from gpulayer.worker import metric_sender
from gpulayer.worker.metric_sender import MetricSender

WAIT = 30.0


class Server:
    """Takes batches; a test says what it makes of one, and may hold it up."""

    def __init__(self):
        self.batches = []
        self.told = []
        self.fail = lambda number: None
        self.open = threading.Event()
        self.open.set()
        self._changed = threading.Condition()

    def __call__(self, batch):
        with self._changed:
            self.batches.append(batch)
            number = len(self.batches)
            self._changed.notify_all()
        assert self.open.wait(WAIT)
        if (error := self.fail(number)) is not None:
            raise error

    def wait_for_batches(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.batches) >= count, WAIT)

    def steps(self):
        return [point.step for batch in self.batches for point in batch.points]


@pytest.fixture
def server():
    return Server()


def make(server, **options):
    return MetricSender(server, node=2, attempt=3, **{"on_lost": pytest.fail, "tell": server.told.append, **options})


def records(*steps, values=None, kind="metrics"):
    return tuple((kind, 100.0 + step, {"step": step, "values": values or {"loss": 0.5}}) for step in steps)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "gpulayer-metrics"]


def test_who_logs_nothing_costs_no_thread_and_no_call(server):
    sender = make(server)
    sender.add(0, records(1, kind="result"), 0)
    assert threads() == []
    assert sender.close()
    assert server.batches == []


def test_all_is_sent_in_order_before_close_returns(server):
    sender = make(server)
    for step in range(1234):
        sender.add(step % 3, records(step), 0)
    assert sender.close(WAIT)
    assert server.steps() == list(range(1234))
    assert [batch.number for batch in server.batches] == list(range(1, len(server.batches) + 1))
    assert max(len(batch.points) for batch in server.batches) <= 500
    assert {(batch.node, batch.attempt, batch.lost) for batch in server.batches} == {(2, 3, 0)}
    first, last = server.batches[0].points[0], server.batches[-1].points[-1]
    assert last.time - first.time == pytest.approx(1233.0)
    assert threads() == []
    assert server.told == []


def test_points_with_many_values_make_smaller_batches(server):
    sender = make(server)
    sender.add(0, records(*range(25), values={str(number): 1.0 for number in range(400)}), 0)
    assert sender.close(WAIT)
    assert server.steps() == list(range(25))
    assert max(sum(len(point.values) for point in batch.points) for batch in server.batches) <= 5000


def test_points_wait_for_more_and_a_full_batch_does_not(server, monkeypatch):
    monkeypatch.setattr(metric_sender, "LOG_FLUSH_SECONDS", 600.0)
    sender = make(server)
    sender.add(0, records(*range(499)), 0)
    sender.add(0, records(499), 0)
    server.wait_for_batches(1)
    sender.add(0, records(500), 0)
    assert sender.close(WAIT)
    assert [len(batch.points) for batch in server.batches] == [500, 1]


@pytest.mark.parametrize(
    "data", [{}, {"step": "x", "values": {}}, {"step": 1, "values": {"loss": "high"}}, {"step": 1, "values": {"loss": 1}, "at": "noon"}]
)
def test_what_is_no_metric_is_dropped_counted_and_said(server, data):
    sender = make(server)
    sender.add(0, (("metrics", 1.0, data), *records(1)), 0)
    sender.add(0, (("metrics", 1.0, data),), 0)
    assert sender.close(WAIT)
    assert server.steps() == [1]
    assert sum(batch.lost for batch in server.batches) == 2
    (said,) = server.told
    assert "Metrics are missing" in said


def test_what_ranks_dropped_is_counted_once(server):
    sender = make(server)
    sender.add(0, records(1), 5)
    sender.add(0, records(2), 5)
    sender.add(1, records(3), 2)
    sender.add(0, records(4), 7)
    assert sender.close(WAIT)
    assert sum(batch.lost for batch in server.batches) == 9
    assert len(server.told) == 1


def test_while_the_control_plane_is_away_the_newest_are_kept(server, monkeypatch):
    monkeypatch.setattr(metric_sender, "MOST_WAITING", 100)
    server.open.clear()
    sender = make(server)
    sender.add(0, records(0), 0)
    server.wait_for_batches(1)
    sender.add(0, records(*range(1, 251)), 0)
    server.open.set()
    assert sender.close(WAIT)
    assert server.steps() == [0, *range(151, 251)]
    assert sum(batch.lost for batch in server.batches) == 150
    (said,) = server.told
    assert "away" in said


def test_a_refused_batch_is_said_and_the_next_one_is_sent(server):
    server.fail = lambda number: InvalidSpec("no such thing") if number == 1 else None
    sender = make(server)
    sender.add(0, records(1), 0)
    server.wait_for_batches(1)
    sender.add(0, records(2), 0)
    assert sender.close(WAIT)
    assert server.batches[1].lost == 1
    (said,) = server.told
    assert "no such thing" in said


def test_a_lost_attempt_is_told_and_nothing_more_is_sent(server):
    server.fail = lambda number: AttemptLost("over")
    lost = []
    sender = make(server, on_lost=lost.append)
    sender.add(0, records(1), 0)
    server.wait_for_batches(1)
    assert not sender.close(WAIT)
    sender.add(0, records(2), 0)
    assert len(lost) == len(server.batches) == 1


def test_given_up_it_ends_at_once(server):
    server.open.clear()
    sender = make(server)
    sender.add(0, records(1), 0)
    server.wait_for_batches(1)
    sender.add(0, records(2), 0)
    assert not sender.close(0.0)
    sender.abandon()
    server.open.set()
    assert not sender.close(WAIT)
    assert server.steps() == [1]


def test_a_fault_of_its_own_ends_the_metrics_alone_and_is_said(server):
    server.fail = lambda number: RuntimeError("broken")
    sender = make(server)
    sender.add(0, records(1), 0)
    assert not sender.close(WAIT)
    (said,) = server.told
    assert "fault of the worker" in said
