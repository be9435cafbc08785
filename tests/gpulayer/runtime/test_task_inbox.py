from __future__ import annotations

from gpulayer.runtime.task_inbox import TaskInbox


def test_what_is_put_comes_in_order_and_before_what_is_due_later():
    inbox, done = TaskInbox(), []
    inbox.set_deadline("late", 1000, lambda: done.append("late"))
    inbox.put(lambda: done.append(1))
    inbox.put(lambda: done.append(2))
    inbox.take()()
    inbox.take()()
    assert done == [1, 2]


def test_a_deadline_comes_once_and_the_earliest_first():
    inbox, done = TaskInbox(), []
    inbox.set_deadline("second", 0.02, lambda: done.append("second"))
    inbox.set_deadline("first", 0.01, lambda: done.append("first"))
    inbox.set_deadline("dropped", 0.0, lambda: done.append("dropped"))
    inbox.drop_deadline("dropped")
    inbox.drop_deadline("unknown")
    assert inbox.has_deadline("first")
    inbox.take()()
    inbox.take()()
    assert done == ["first", "second"]
    assert not inbox.has_deadline("first")


def test_all_that_is_there_is_taken_without_waiting():
    inbox = TaskInbox()
    assert inbox.take_all() == []
    inbox.put(print)
    assert inbox.take_all() == [print]
