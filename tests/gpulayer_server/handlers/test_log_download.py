"""A job's output as a download, and the files that it ran."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest
from support.hosted import NO_TOKEN, Hosted
from support.stream import Printer, submit


async def download(hosted: Hosted, job_id: str, query: str = "") -> tuple[str, dict[str, str]]:
    answer = await hosted.fetch("GET", f"gpulayer/v1/jobs/{job_id}/log.txt{query}")
    assert answer.code == 200, answer.body
    return answer.body.decode(), dict(answer.headers)


@pytest.fixture
def bars() -> list[str]:
    return ["0%\r", "50%\r", "100%\n", "\x1b[31mred\x1b[0m\n", "caf\u00e9\n", "no end"]


async def test_plain_is_what_a_terminal_would_show(hosted: Hosted, bars: list[str]) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    await printer.print(*bars)
    await printer.print("oops\n", stream="stderr")
    await printer.print("other\n", rank=1)
    text, headers = await download(hosted, job_id)
    assert sorted(text.splitlines()) == sorted(
        ["[rank 0] 100%", "[rank 0] red", "[rank 0] caf\u00e9", "[rank 0] no end", "[rank 0 stderr] oops", "[rank 1] other"]
    )
    of_rank, _ = await download(hosted, job_id, "?rank=0&form=plain")
    assert of_rank.splitlines() == ["100%", "red", "caf\u00e9", "no end", "oops"]
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Disposition"] == f'attachment; filename="{job_id}.log.txt"'


async def test_raw_is_every_byte(hosted: Hosted, bars: list[str]) -> None:
    job_id = await submit(hosted)
    printer = await Printer.take(hosted, job_id)
    await printer.print(*bars)
    for _ in range(5):
        await printer.print(*["x" * 60_000] * 10)
    text, _ = await download(hosted, job_id, "?form=raw")
    assert text == "".join(bars) + "x" * 3_000_000


async def test_of_a_job_that_prints_on_it_is_what_is_there(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    assert (await download(hosted, job_id))[0] == ""
    printer = await Printer.take(hosted, job_id)
    await printer.print("one\n")
    assert (await download(hosted, job_id, "?rank=1"))[0] == ""
    assert (await download(hosted, job_id, "?rank=0"))[0] == "one\n"


async def test_what_cannot_be_downloaded(hosted: Hosted) -> None:
    job_id = await submit(hosted)
    for path, status in ((f"{job_id}/log.txt?form=html", 400), (f"{job_id}/log.txt?rank=-1", 400), ("none/log.txt", 404)):
        answer = await hosted.fetch("GET", f"gpulayer/v1/jobs/{path}")
        assert answer.code == status
        assert "Content-Disposition" not in answer.headers
    assert (await hosted.fetch("GET", f"gpulayer/v1/jobs/{job_id}/log.txt", token=NO_TOKEN)).code == 401


# ---- source


async def test_the_source_of_a_job(hosted: Hosted) -> None:
    files = {"a.py": b"first = 1\n", "main.py": b"import a\n", "photo.png": b"\x89PNG\0", "latin": b"\xe9", "long.py": b"#" * 200_001}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as opened:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            opened.addfile(member, io.BytesIO(data))
    data = archive.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    sent = await hosted.fetch("PUT", f"gpulayer/v1/artifacts/{digest}?offset=0&total={len(data)}", body=data)
    assert json.loads(sent.body)["complete"]
    body = {"spec": {"kind": "distributed", "script": "main.py"}, "idempotency_key": "source", "source": digest}
    job = await hosted.call("POST", "jobs", body=body)
    source = await hosted.call("GET", f"jobs/{job['job_id']}/source")
    assert [file["path"] for file in source["files"]] == ["main.py", "a.py", "latin", "long.py", "photo.png"]
    assert {file["path"]: file["text"] for file in source["files"]} == {
        "main.py": "import a\n",
        "a.py": "first = 1\n",
        "latin": None,
        "long.py": None,
        "photo.png": None,
    }
    assert {file["path"]: file["size_bytes"] for file in source["files"]} == {name: len(data) for name, data in files.items()}
    assert (source["script"], source["more_files"]) == ("main.py", 0)
    without = await submit(hosted)
    assert (await hosted.call("GET", f"jobs/{without}/source"))["files"] == []
