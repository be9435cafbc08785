from __future__ import annotations

import json

import pytest
from support.client import job_status

from gpulayer import CommandJob
from gpulayer.cli.job_record import whole_record
from gpulayer.cli.job_show import BAR_CELLS, RANKS_SHOWN, ROWS_SHOWN, bar, outcome_text, print_job
from gpulayer.cli.main import run_command
from gpulayer.client.status_text import duration_text
from gpulayer.client.waterfall import waterfall_of
from gpulayer.protocol import MARKS, Failure, OutputFile, RankError, RankOutcome, TaskEnvironment, TaskStatus
from gpulayer.spec import DistributedJob
from gpulayer.states import AttemptState, JobState

CREATED = 1_700_000_000.0
SECRET = {"TOKEN": "canary"}
USUAL = [mark for mark in MARKS if mark != "equipped"]


def outcome(rank, **fields):
    known = {"exit_code": 0, "returned": True, "launcher": "warm", "marks": {name: (1 + at) / 10 for at, name in enumerate(USUAL)}}
    return RankOutcome(**{"rank": rank, "local_rank": rank, **known, **fields})


def task(node, *ranks, **fields):
    known = {"state": AttemptState.SUCCEEDED, "attempt": 1, "worker_id": f"w{node}", "worker": f"gpu-{node}", "host": f"host-{node}"}
    return TaskStatus(**{"node": node, "placed_at": CREATED + 1, "devices": ("cpu:0",), "ranks": ranks, **known, **fields})


def job(*tasks, state=JobState.SUCCEEDED, **fields):
    devices = max([len(task.ranks) for task in tasks] or [1])
    known = {
        "spec": DistributedJob(script="train.py", nodes=max(len(tasks), 1), devices=max(devices, 1), launcher="auto", env=SECRET),
        "created_at": CREATED,
        "started_at": CREATED + 1.2,
        "ended_at": CREATED + 2,
    }
    return job_status(state, tasks=tasks, **{**known, **fields})


@pytest.fixture
def shown(capsys):
    def show(status):
        print_job(status, waterfall_of(status, CREATED + 4))
        text = capsys.readouterr().out
        assert "canary" not in text
        return [" ".join(line.split()) for line in text.splitlines()]

    return show


def test_what_was_asked_where_it_ran_and_how_each_rank_ended(shown):
    cold = outcome(1, launcher="direct", cold_reason="its zygote has ended")
    output = OutputFile(path="out.txt", sha256="0" * 64, size_bytes=12_345)
    lines = shown(job(task(0, outcome(0), outputs=(output,)), task(1, cold)))
    assert lines[:7] == [
        "job j1",
        "name train",
        "state succeeded",
        "shape 2 nodes × 1 device, cpu",
        "launcher auto asked; direct for 1 rank, warm for 1 rank",
        "created 2023-11-14 22:13:20 UTC",
        "",
    ]
    assert "1 succeeded gpu-1 host-1 cpu:0" in lines
    assert "0 0 warm exit code 0" in lines
    assert "1 1 direct exit code 0 not started warm: its zygote has ended" in lines
    assert "node0/out.txt 12.3 kB" in lines


def test_what_ranks_found_is_told_once_for_nodes_that_found_the_same(shown):
    same = TaskEnvironment(python="3.12.1", packages={"torch": "2.13.0", "numpy": "2.1.0"})
    other = TaskEnvironment(
        python="3.11.7", packages={"torch": "2.13.0"}, differences=("numpy 2.1.0 there, 1.26\x1b here",), requirements="0" * 64
    )
    lines = shown(job(task(0, outcome(0), environment=same), task(1, outcome(1), environment=same), task(2, outcome(2), environment=other)))
    assert "0, 1 3.12.1 numpy 2.1.0, torch 2.13.0" in lines
    told = next(line for line in lines if line.startswith("2 3.11.7"))
    assert told.startswith("2 3.11.7 torch 2.13.0 of its requirements, written with others: numpy 2.1.0 there")


def test_the_waterfall_has_a_row_for_each_step_with_its_time_and_a_bar(shown):
    lines = shown(job(task(0, outcome(0))))
    begin = lines.index("step from time")
    cells = [line.replace("█", "").split() for line in lines[begin + 1 :]]
    assert [" ".join(row) for row in cells] == [
        "job queued 0.0 ms 1.00 s",
        "assigned 1.00 s 200 ms",
        "running 1.20 s 700 ms",
        "finish 1.90 s 100 ms",
        "rank 0 fetch 1.00 s 100 ms",
        "launch 1.10 s 100 ms",
        "start 1.20 s 100 ms",
        "imports 1.30 s 100 ms",
        "rendezvous 1.40 s 100 ms",
        "before the first step 1.50 s 100 ms",
        "steps 1.60 s 100 ms",
        "after the last step 1.70 s 100 ms",
        "teardown 1.80 s 100 ms",
    ]
    assert all(line.endswith("█") for line in lines[begin + 1 :])


def test_a_failure_is_told_as_everywhere_and_names_no_control_characters(shown):
    error = RankError(type="ValueError", message="odd\x1b[31m\nmore", traceback="")
    failed = outcome(0, exit_code=1, returned=False, error=error)
    stopped = outcome(1, exit_code=None, signal=15, returned=False, collateral=True)
    failure = Failure(reason="rank", message="", rank=0, node=0, exit_code=1, error=error)
    lines = shown(job(task(0, failed, stopped), state=JobState.FAILED, failure=failure))
    assert any(line.startswith("Job j1 'train' failed: rank 0 (node 0) exited with code 1.") for line in lines)
    assert "Its output: gpulayer logs j1 --rank 0" in lines
    assert any(line.startswith("0 0 warm exit code 1 ValueError: odd\N{REPLACEMENT CHARACTER}[31m") for line in lines)
    assert any(line.startswith("1 0 warm stopped as another failed: SIGTERM (signal 15)") for line in lines)
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "exit code 0"),
        ({"exit_code": 3, "returned": False}, "exit code 3"),
        ({"exit_code": None, "signal": 9, "returned": False}, "SIGKILL (signal 9)"),
        ({"exit_code": None, "signal": 6}, "returned, then SIGABRT (signal 6)"),
        ({"exit_code": None, "returned": False}, "end not seen"),
        ({"exit_code": 1, "returned": False, "collateral": True}, "stopped as another failed: exit code 1"),
    ],
)
def test_every_end_of_a_rank_has_words(fields, text):
    assert outcome_text(outcome(0, **fields)) == text


def test_a_job_that_waits_shows_why_and_how_long_so_far(shown):
    waiting = job(state=JobState.QUEUED, started_at=None, ended_at=None, waiting_for="no worker yet")
    lines = shown(waiting)
    assert "state queued: no worker yet" in lines
    assert "launcher auto" in lines
    assert lines[-1] == f"job queued 0.0 ms 4.00 s so far {'█' * BAR_CELLS}"


def test_a_job_that_may_be_tried_again_says_which_try_it_is(shown):
    spec = CommandJob(("true",), retries=2, env=SECRET)
    command = outcome(0, launcher=None, start="cold", cold_reason="it passes interpreter flags")
    lines = shown(job(task(0, command, attempt=2), spec=spec, attempt=2))
    assert "attempt 2 of at most 3" in lines
    assert not any(line.startswith("launcher") for line in lines)
    assert "0 0 command, cold exit code 0 not started warm: it passes interpreter flags" in lines
    assert any(line.startswith("job earlier attempts, queued") for line in lines)


def test_of_many_ranks_steps_are_summed_up_and_only_the_guilty_one_is_shown(shown):
    ranks = [outcome(rank) for rank in range(64)]
    slow = dict(ranks[41].marks)
    slow["ended"] += 0.05
    ranks[41] = outcome(41, marks=slow)
    ranks[40] = outcome(40, exit_code=1, returned=False, marks={"fetched": 0.1, "entered": 0.2, "ended": 0.3})
    tasks = [task(node, *ranks[8 * node : 8 * node + 8]) for node in range(8)]
    lines = shown(job(*tasks, state=JobState.FAILED, failure=Failure(reason="rank", message="", rank=40, node=5, exit_code=1)))
    assert "0–7 0 warm exit code 0" in lines
    assert "40 5 warm exit code 1" in lines
    assert "41–47 5 warm exit code 0" in lines
    assert [line.split()[1] for line in lines if line.startswith("rank ") and line.split()[1].isdigit()] == ["40"]
    summary = lines[lines.index("step of 64 ranks least median most") :]
    assert any(line.startswith("teardown (63 ranks) 100 ms 100 ms 150 ms (rank 41)") for line in summary)
    assert any(line.startswith("script (1 rank) 100 ms 100 ms 100 ms (rank 40)") for line in summary)
    assert len(lines) < 70


def test_a_listing_within_a_job_ends_and_says_what_it_leaves_out(shown):
    outputs = tuple(OutputFile(path=f"{number}.txt", sha256="0" * 64, size_bytes=1) for number in range(ROWS_SHOWN + 5))
    alternating = [outcome(rank, exit_code=rank % 2, returned=False) for rank in range(40)]
    tasks = [task(0, *alternating, outputs=outputs), *(task(node) for node in range(1, 20))]
    lines = shown(job(*tasks))
    assert "… 5 more outputs; --json has all" in lines
    assert "… 4 more nodes; --json has all" in lines
    assert f"… {40 - ROWS_SHOWN} more rows of ranks; --json has all" in lines


def test_the_object_for_programs_has_all_ranks_and_no_variables():
    status = job(*(task(node, *(outcome(8 * node + rank) for rank in range(8))) for node in range(8)))
    record = json.loads(json.dumps(whole_record(status, waterfall_of(status))))
    assert "canary" not in json.dumps(record)
    assert record["launcher"] == "auto"
    assert sum(len(one["ranks"]) for one in record["tasks"]) == 64 > RANKS_SHOWN
    assert len(record["waterfall"]) == 4 + 64 * len(USUAL)
    assert record["waterfall"][0] == {
        "step": "queued",
        "start": 0.0,
        "end": 1.0,
        "rank": None,
        "node": None,
        "attempt": 1,
        "mark": None,
        "so_far": False,
    }


def test_times_have_the_unit_in_which_they_are_read():
    seconds = (0, 0.00083, 0.0099, 0.00999, 0.0434, 0.9994, 0.9996, 2.414, 99.99, 125.2)
    assert [duration_text(one) for one in seconds] == [
        "0.0 ms",
        "0.8 ms",
        "9.9 ms",
        "10 ms",
        "43 ms",
        "999 ms",
        "1.00 s",
        "2.41 s",
        "99.99 s",
        "125 s",
    ]


def test_a_bar_takes_its_share_of_the_line_and_never_nothing():
    assert bar(0, 10, 10) == "█" * BAR_CELLS
    assert bar(5, 10, 10) == " " * (BAR_CELLS // 2) + "█" * (BAR_CELLS // 2)
    assert bar(10, 10, 10) == " " * (BAR_CELLS - 1) + "█"
    assert bar(0, 0, 10) == "█"
    assert bar(0, 0, 0) == ""


# ---- the command


def test_a_job_that_ran_is_shown_with_its_times(client, capsys):
    code = "import os; open(os.environ['GPULAYER_OUTPUT_DIR'] + '/left.txt', 'w').write('x'); raise SystemExit(4)"
    job = client.submit(CommandJob(["python", "-c", code], env=SECRET, name="shown")).wait()
    assert run_command(["jobs", "show", job.id]) == 0
    text = capsys.readouterr().out
    for words in (
        job.id,
        "shown",
        "failed",
        "1 node × 1 device, cpu",
        "exited with code 4",
        "exit code 4",
        "left.txt",
        "local-1",
        "queued",
    ):
        assert words in text
    assert run_command(["jobs", "show", job.id, "--json"]) == 0
    whole = capsys.readouterr().out
    record = json.loads(whole)
    assert "canary" not in text + whole
    (ran,) = record["tasks"]
    assert record["created_at"] <= ran["placed_at"] <= record["ended_at"]
    own = [span for span in record["waterfall"] if span["rank"] is None]
    assert [span["step"] for span in own][:3] == ["queued", "assigned", "running"]
    assert own[-1]["end"] == pytest.approx(record["ended_at"] - record["created_at"])
    assert [span.end for span in job.waterfall()] == [span["end"] for span in record["waterfall"]]


def test_options_before_the_word_count_too_and_those_of_the_list_are_refused(client, capsys):
    job = client.submit(CommandJob(["true"])).wait()
    assert run_command(["jobs", "--json", "--target", "local", "show", job.id]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == job.id
    assert run_command(["jobs", "--limit", "3", "show", job.id]) == 2
    assert "--limit is for the list" in capsys.readouterr().err
    assert run_command(["jobs", "show", "j-none"]) == 1
    assert "There is no such job." in capsys.readouterr().err
    assert run_command(["jobs", "show"]) == 2
    assert "JOB" in capsys.readouterr().err
    assert run_command(["jobs", job.id]) == 2
    assert f"`gpulayer jobs show {job.id}` shows one job" in capsys.readouterr().err
    assert run_command(["jobs", "list"]) == 2
    assert "There is no `gpulayer jobs list`: `gpulayer jobs` lists jobs." in capsys.readouterr().err
    assert run_command(["jobs", "show", job.name]) == 0
    assert job.id in capsys.readouterr().out
