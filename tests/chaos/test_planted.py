"""A bug planted into the server or the worker is found by the checker; without the plant the same scenario is clean."""

from collections.abc import Iterator

import pytest
from support.chaos_checker import check
from support.chaos_place import ChaosPlace, chaos_place
from support.chaos_proxy import ASSIGNMENT_IN_ANSWER

pytestmark = pytest.mark.e2e

PROOF_POLLS = 3
"""Held calls after which an assignment that was not repeated never comes; a healthy server repeats it with the first."""
RESISTS = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosPlace]:
    with chaos_place(tmp_path_factory.mktemp("planted"), plants=True) as place:
        place.start_worker()
        yield place


def lose_its_lease(place: ChaosPlace, key: str) -> list[str]:
    """Heartbeats and polls of a worker don't get through any more, but its output does: the fence alone keeps it out."""
    job_id = place.submit(key, 1000, 0.02)
    assert place.wait_until(lambda: place.running_on(place.workers[0]), 30.0)
    place.proxy.refuse = lambda line: b"/worker/heartbeat " in line or b"/worker/acquire " in line
    try:
        place.proxy.cut_all()  # a held poll would still be answered
        assert place.wait_until(lambda: not place.unfinished(), 30.0)
        place.wait_until(lambda: [row for row in place.observer.seen() if (row.kind, row.job_id) == ("late", job_id)], 3.0)
    finally:
        place.proxy.refuse = lambda line: False
    place.proxy.wait_for_requests(b"acquire", 2)
    return [job_id]


def cut_the_answer(place: ChaosPlace, key: str) -> list[str]:
    """The answer with the assignment never reaches its worker."""
    cut = place.proxy.answers_cut
    place.proxy.cut_answer(ASSIGNMENT_IN_ANSWER)
    try:
        job_id = place.submit(key, 2, 0.0)
        assert place.proxy.wait_for_cut(cut + 1)
    finally:
        place.proxy.cut_answer(None)
    place.proxy.wait_for_requests(b"acquire", PROOF_POLLS)
    place.wait_until(lambda: not place.unfinished(), 2.0)
    return [job_id]


def print_for_a_while(place: ChaosPlace, key: str) -> list[str]:
    """Output of several flushes."""
    job_id = place.submit(key, 60, 0.02)
    assert place.wait_until(lambda: not place.unfinished(), 30.0)
    return [job_id]


def cancel_what_resists(place: ChaosPlace, key: str) -> list[str]:
    """A second job waits for the device of one that is being stopped and does not end at once."""
    first = place.submit(f"{key}-first", 1000, 0.02, grace_seconds=1.0, before=RESISTS)
    assert place.wait_until(lambda: place.running_on(place.workers[0]), 30.0)
    place.client.job(first).cancel()
    second = place.submit(f"{key}-second", 2, 0.0)
    assert place.wait_until(lambda: not place.unfinished(), 30.0)
    return [first, second]


# The one that leaves a job behind comes last: its device is never free again.
SCENARIOS = {
    "dropped chunk": (print_for_a_while, "output missing"),
    "freed too early": (cancel_what_resists, "device twice"),
    "without a fence": (lose_its_lease, "fenced write stored"),
    "acknowledged when sent": (cut_the_answer, "accepted job never ended"),
}

QUICK = ("dropped chunk", "freed too early", "acknowledged when sent")
CLEAN = [plant if plant in QUICK else pytest.param(plant, marks=pytest.mark.soak) for plant in SCENARIOS]


@pytest.mark.parametrize("plant", CLEAN)
def test_without_a_plant_the_scenario_is_clean(place: ChaosPlace, plant: str) -> None:
    scenario, _ = SCENARIOS[plant]
    jobs = scenario(place, f"clean {plant}")
    place.ask_for_outcomes()
    assert check(place.history(*jobs)) == []


@pytest.mark.parametrize("plant", SCENARIOS)
def test_a_planted_bug_is_found(place: ChaosPlace, plant: str) -> None:
    scenario, found = SCENARIOS[plant]
    with place.planted(plant):
        jobs = scenario(place, plant)
    broken = check(place.history(*jobs))
    assert [line for line in broken if line.startswith(found)], broken
