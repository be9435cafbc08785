"""Seeded faults against a real server, real workers and their jobs; the checker then looks for a promise that was not kept."""

import os
from pathlib import Path

import pytest
from support.chaos_checker import check
from support.chaos_place import chaos_place
from support.chaos_run import ChaosRun

pytestmark = pytest.mark.e2e

SEED = int(os.environ.get("CHAOS_SEED", "1"))
SOAK_SEEDS = [SEED] if "CHAOS_SEED" in os.environ else [11, 12, 13]


def run_chaos(folder: Path, seed: int, seconds: float, show: pytest.CaptureFixture[str], *, distributed: bool) -> None:
    with chaos_place(folder, frameworks="python,torch" if distributed else "python") as place:
        for number in range(3):
            place.start_worker(by_home=number == 2)
        run = ChaosRun(place, seed, seconds, distributed=distributed)
        try:
            run.run()
        finally:
            with show.disabled():
                print(f"\n{run.summary()}\nagain: CHAOS_SEED={seed} make soak ARGS='tests/chaos -k faults'")
        broken = check(place.history())
        assert not broken, f"seed {seed}:\n" + "\n".join(broken)
        assert not run.never_counted, f"seed {seed}: faults that hit nothing: {run.never_counted}"


@pytest.mark.parametrize("seed", [SEED])
def test_promises_are_kept_under_faults(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    run_chaos(tmp_path, seed, 10.0, capsys, distributed=False)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_promises_are_kept_under_faults_for_minutes(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    run_chaos(tmp_path, seed, 300.0 / len(SOAK_SEEDS), capsys, distributed=True)
