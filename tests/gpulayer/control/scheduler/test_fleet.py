"""A fleet that follows changes answers as a look at every worker does."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.views import job, worker

from gpulayer.control.scheduler import fleet as fleet_module
from gpulayer.control.scheduler.feasible import chosen_kind, place_job
from gpulayer.control.scheduler.fleet import Fleet

kinds = st.sampled_from(["cpu", "cuda", "mps", "rocm"])
labels = st.sets(st.sampled_from(["torch", "jax", "own"]), max_size=3)
names = st.integers(0, 8)


@st.composite
def workers(draw):
    name = draw(names)
    counts = draw(st.dictionaries(kinds, st.integers(0, 3), max_size=3))
    ids = [f"{kind}:{number}" for kind, count in counts.items() for number in range(count)]
    return worker(
        f"w{name}",
        held=draw(st.sets(st.sampled_from(ids))) if ids else (),
        provides=draw(labels),
        host=draw(st.sampled_from(["h1", "h2", "h3"])),
        loopback=draw(st.booleans()),
        draining=draw(st.sampled_from([False, False, False, True])),
        **counts,
    )


jobs = st.builds(
    job,
    nodes=st.integers(1, 3),
    devices=st.integers(1, 3),
    accelerator=st.sampled_from(["auto", "auto", "cpu", "cuda", "mps", "rocm"]),
    requires=labels,
)
changes = st.lists(st.one_of(workers(), names, jobs), max_size=40)


# With no worker few enough and one shelf kept, every answer is a shelf's, and shelves are given up and made again.
@pytest.mark.parametrize(("few", "shelves"), [(-1, 1), (-1, 3), (2, 2), (fleet_module.FEW_WORKERS, fleet_module.MOST_SHELVES)])
def test_whatever_changes_it_answers_as_a_look_at_every_worker(few, shelves):
    @settings(derandomize=True, deadline=None, max_examples=50)
    @given(changes)
    def check(said):
        fleet, there = Fleet(), {}
        for one in said:
            if isinstance(one, int):
                there.pop(f"w{one}", None)
                fleet.remove(f"w{one}")
            elif hasattr(one, "nodes"):
                assert fleet.chosen_kind(one) == chosen_kind(tuple(there.values()), one)
                placement = place_job(tuple(there.values()), one)
                assert fleet.place_job(one) == placement
                if placement is not None:
                    fleet.hold(placement)
                    for node in placement.nodes:
                        there[node.worker_id] = replace(there[node.worker_id], held=there[node.worker_id].held | set(node.device_ids))
            else:
                there[one.id] = one
                fleet.put(one)
            assert {found.id: found for found in fleet.workers} == there
            assert fleet.has_room == any(found.has_room for found in there.values() if not found.draining)

    with mock.patch.multiple(fleet_module, FEW_WORKERS=few, MOST_SHELVES=shelves):
        check()


def test_one_decision_looks_at_no_more_workers_than_it_needs():
    fleet = Fleet(worker(f"w{index}", cpu=1, host=f"h{index}", provides=["torch", f"only-{index}"]) for index in range(2000))
    asked = [job(), job(requires=["torch"]), job(requires=["only-7"]), job(requires=["torch", "only-7"])]
    for one in asked:  # the first of its kind puts the workers in order
        fleet.place_job(one)
    free = type(fleet.workers[0]).free
    with mock.patch.object(type(fleet.workers[0]), "free", autospec=True, side_effect=free) as looks:
        for one in asked:
            assert fleet.place_job(one) is not None
    assert looks.call_count < 20


def test_what_is_provided_is_asked_of_one_worker_that_takes_work():
    fleet = Fleet([worker("a", provides=["torch"], cpu=1), worker("b", provides=["jax"], cpu=1)])
    fleet.put(worker("c", provides=["torch", "jax"], draining=True, cpu=1))
    assert fleet.provides(frozenset({"torch"}))
    assert fleet.provides(frozenset())
    assert not fleet.provides(frozenset({"torch", "jax"}))
    assert not fleet.provides(frozenset({"tensorflow"}))
    fleet.put(worker("c", provides=["torch", "jax"], cpu=1))
    assert fleet.provides(frozenset({"torch", "jax"}))
