from __future__ import annotations

import pytest

from gpulayer.errors import InvalidSpec
from gpulayer.spec import CommandJob


@pytest.mark.parametrize("devices", [0.5, 2.0, float("inf"), float("nan"), "2", True, None])
def test_devices_that_are_no_whole_number_are_told_so(devices):
    with pytest.raises(InvalidSpec, match="Whole devices only"):
        CommandJob(["true"], devices=devices)


@pytest.mark.parametrize("devices", [0, -1])
def test_a_job_holds_a_device(devices):
    with pytest.raises(InvalidSpec, match="at least one device"):
        CommandJob(["true"], devices=devices)


@pytest.mark.parametrize("program", ["", " "])
def test_a_command_names_a_program(program):
    with pytest.raises(InvalidSpec, match="is empty"):
        CommandJob([program])
