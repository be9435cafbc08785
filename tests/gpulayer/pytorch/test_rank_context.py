from pathlib import Path

from gpulayer.pytorch.rank_context import RankContext, read_rank_context

JOB = {
    "GPULAYER_JOB_ID": "j-1",
    "GPULAYER_NODES": "2",
    "GPULAYER_DEVICES": "3",
    "GPULAYER_ACCELERATOR": "cuda",
    "GPULAYER_OUTPUT_DIR": "/out",
    "GPULAYER_INPUTS_DIR": "/in",
}
RANKS = {"RANK": "4", "LOCAL_RANK": "1", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3"}


def test_outside() -> None:
    assert read_rank_context({}) == RankContext()
    assert not read_rank_context({}).is_rank


def test_in_a_distributed_job() -> None:
    assert read_rank_context({**JOB, **RANKS, "_GPULAYER_FIT": "1"}) == RankContext(
        job_id="j-1",
        is_rank=True,
        rank=4,
        local_rank=1,
        world_size=6,
        nodes=2,
        devices=3,
        accelerator="cuda",
        output_dir=Path("/out"),
        inputs_dir=Path("/in"),
        requested_fit=1,
    )


def test_in_a_command_job() -> None:
    context = read_rank_context(JOB | {"GPULAYER_NODES": "1", "GPULAYER_DEVICES": "1"})
    assert (context.is_rank, context.rank, context.world_size) == (True, 0, 1)


def test_under_a_torchrun_of_ones_own() -> None:
    context = read_rank_context(RANKS)
    assert (context.is_rank, context.job_id, context.nodes, context.devices) == (True, None, 2, 3)
