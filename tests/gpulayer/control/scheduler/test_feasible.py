from __future__ import annotations

import pytest
from support.views import job, worker

from gpulayer.control.scheduler.feasible import chosen_kind, why_waiting
from gpulayer.control.scheduler.view import View


@pytest.mark.parametrize(
    ("offers", "asked", "kind"),
    [
        ([{"cpu": 4, "cuda": 2}], {"devices": 2}, "cuda"),
        ([{"cpu": 4, "cuda": 2}], {"devices": 4}, "cpu"),
        ([{"cpu": 4, "rocm": 1, "cuda": 0}], {"devices": 1}, "rocm"),
        ([{"cpu": 4, "mps": 1}], {"devices": 1}, "mps"),
        ([{"cpu": 4, "mps": 2}], {"devices": 2}, "cpu"),
        ([{"cpu": 4, "mps": 1}, {"cpu": 4, "mps": 1}], {"devices": 1, "nodes": 2}, "cpu"),
        ([{"cpu": 4, "cuda": 2}, {"cpu": 4}], {"devices": 2, "nodes": 2}, "cpu"),
        ([{"cpu": 4}], {"devices": 5}, None),
        ([{"cpu": 4}], {"devices": 1, "accelerator": "cuda"}, None),
    ],
)
def test_auto_means_the_best_kind_that_could_hold_the_job(offers, asked, kind):
    assert chosen_kind([worker(f"w{index}", **offer) for index, offer in enumerate(offers)], job(**asked)) == kind


def test_held_devices_count_for_what_could_hold_it():
    assert chosen_kind([worker("a", cuda=1, cpu=2, held=["cuda:0"])], job(devices=1)) == "cuda"


@pytest.mark.parametrize(
    ("workers", "asked", "words"),
    [
        ([], {}, "no worker yet: start one with `gpulayer worker start`"),
        (
            [worker("a", cpu=2, held=["cpu:0"]), worker("b", cpu=2)],
            {"devices": 2, "nodes": 2, "accelerator": "cpu"},
            "needs 2 × cpu on each of 2 nodes; free: 1 on a, 2 on b",
        ),
        ([worker("a", cpu=1, held=["cpu:0"])], {}, "needs 1 × cpu; free: none"),
        ([worker("a", cpu=1)], {"devices": 2, "accelerator": "cpu"}, "needs 2 × cpu; the largest worker has 1 × cpu"),
        (
            [worker("a", cpu=2)],
            {"devices": 2, "nodes": 2, "accelerator": "cpu"},
            "needs 2 × cpu on each of 2 nodes; 1 worker has that many",
        ),
        ([worker("a", cpu=1)], {"accelerator": "cuda"}, "needs 1 × cuda; no worker has any"),
        ([worker("a", cpu=1, draining=True)], {"accelerator": "cpu"}, "needs 1 × cpu; every worker is draining"),
        ([worker("a", cpu=1)], {"requires": ["torch"]}, "needs torch; no worker provides it"),
    ],
)
def test_the_reason_for_waiting_is_in_words(workers, asked, words):
    asked_job = job(**asked)
    assert why_waiting(View(workers=tuple(workers), jobs=(asked_job,)), asked_job).words == words


def test_of_a_large_fleet_a_few_are_named():
    workers = tuple(worker(f"w{index:03}", cpu=1) for index in range(500))
    text = why_waiting(View(workers=workers), job(devices=1, nodes=1, accelerator="cpu")).words
    assert text.startswith("needs 1 × cpu; free: 1 on w000, 1 on w001, ")
    assert text.endswith("1 on w019 and 480 more")


def test_workers_behind_a_tunnel_are_named():
    workers = (worker("a", cpu=1, host="h1", loopback=True), worker("b", cpu=1, host="h2"))
    text = why_waiting(View(workers=workers), job(nodes=2, accelerator="cpu")).words
    assert "a can be reached from the own host only" in text
    assert "--address" in text
