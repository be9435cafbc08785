"""A job as its submitter holds it: wait for it, read its output, stop it, fetch what it left."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulayer.client.downloads import download_outputs, output_files
from gpulayer.client.failures import job_failed
from gpulayer.client.following import Following
from gpulayer.client.log_lines import LineAssembler, LogLine
from gpulayer.client.metrics import MetricTable, table_of
from gpulayer.client.status_text import one_line
from gpulayer.client.surroundings import in_notebook
from gpulayer.client.tables import OutputFiles, Waterfall
from gpulayer.client.waterfall import waterfall_of
from gpulayer.errors import NotFound, Unsupported
from gpulayer.protocol import (
    CancelJob,
    Display,
    DisplayPage,
    GetJob,
    JobId,
    JobStatus,
    LogPage,
    MetricPage,
    OutputFile,
    ReadDisplays,
    ReadLogs,
    ReadMetrics,
)
from gpulayer.settings import LONG_POLL_SECONDS
from gpulayer.spec import DistributedJob
from gpulayer.states import JobState

if TYPE_CHECKING:
    from gpulayer.client.client import Client
    from gpulayer.client.values import Values

__all__ = ["Job", "LogLine"]


class Job:
    """One submitted job. Waiting is done by held calls, and outlasts a restart of the server.

    Args:
        client: through which it is reached.
        status: what is known of it.
    """

    def __init__(self, client: Client, status: JobStatus) -> None:
        self._client = client
        self._status = status

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} {one_line(self._status)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        """What a notebook keeps as a cell's value: nothing that goes stale or that stands in the job's output above it."""
        return {"text/plain": f"<Job {self.id} {self.name!r}>"} if in_notebook() else {}

    @property
    def id(self) -> JobId:
        return self._status.job_id

    @property
    def name(self) -> str:
        return self._status.name

    @property
    def client(self) -> Client:
        return self._client

    @property
    def status(self) -> JobStatus:
        """The record as it was last seen; asks nobody."""
        return self._status

    @property
    def state(self) -> JobState:
        """The state at this moment; asks the control plane unless the job has ended."""
        return self._status.state if self._status.state.is_terminal else self.refresh().status.state

    @property
    def exit_code(self) -> int | None:
        """0 after success; what the first failing process left with, -N after signal N; None while nobody knows."""
        if self.state is JobState.SUCCEEDED:
            return 0
        failure = self._status.failure
        if failure is None:
            return None
        return -failure.signal if failure.signal is not None else failure.exit_code

    def refresh(self) -> Job:
        """Ask for the record as it is."""
        return self._ask(GetJob(job_id=self.id))

    def wait(self, timeout: float | None = None) -> Job:
        """Block until the job has ended, however it ended; every line of its output can be read then.

        Raises:
            TimeoutError: it has not ended within `timeout` seconds. The job goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._status.state.is_terminal:
            left = LONG_POLL_SECONDS if deadline is None else deadline - time.monotonic()
            self._ask(GetJob(job_id=self.id, wait=max(0.0, min(left, LONG_POLL_SECONDS))))
            if deadline is not None and time.monotonic() >= deadline and not self._status.state.is_terminal:
                raise TimeoutError(f"job {self.id} is still {self._status.state} after {timeout} s")
        return self

    def result(self, timeout: float | None = None) -> JobStatus:
        """Wait, then return the final record.

        Raises:
            JobFailed: it did not succeed; names the first rank that failed, and carries its traceback.
        """
        self.wait(timeout)
        if self._status.state is not JobState.SUCCEEDED:
            raise job_failed(self._status)
        return self._status

    def cancel(self, force: bool = False) -> Job:
        """Order the job to stop: SIGINT, and after its grace SIGTERM and SIGKILL; with `force` SIGKILL at once. Does not wait."""
        self._status = self._client.call_patiently("cancel", CancelJob(job_id=self.id, force=force))
        return self

    # ---- output

    def logs(self, rank: int | None = None) -> Iterator[LogLine]:
        """The lines that are stored so far, an unfinished last line included; of all ranks, or of one.

        Raises:
            NotFound: the job has no such rank.
        """
        self._check_rank(rank)
        assembler = LineAssembler()
        after = 0
        while True:
            page = self._client.call_patiently("read_logs", ReadLogs(job_id=self.id, rank=rank, after=after))
            yield from assembler.feed(page.chunks)
            if not page.chunks or page.complete:
                break
            after = page.next
        yield from assembler.finish()

    def follow_logs(self, rank: int | None = None) -> Iterator[LogLine]:
        """Every line from the first on, as they come, until the job has ended and all is read.

        Raises:
            NotFound: the job has no such rank.
        """
        self._check_rank(rank)
        assembler = LineAssembler()
        for page in self.follow_pages(rank):
            yield from assembler.feed(page.chunks)
        yield from assembler.finish()

    def follow_pages(self, rank: int | None = None, stop: threading.Event | None = None) -> Iterator[LogPage]:
        """Stored output in raw chunks, as it comes, until the end or `stop` is set: for views that also draw unfinished lines."""
        after = 0
        complete = False
        while not complete and not (stop is not None and stop.is_set()):
            page: LogPage = self._client.call_patiently(
                "read_logs", ReadLogs(job_id=self.id, rank=rank, after=after, wait=LONG_POLL_SECONDS)
            )
            after, complete = page.next, page.complete
            if page.chunks:
                yield page

    def follow(
        self,
        *,
        on_page: Callable[[LogPage], None] | None = None,
        on_status: Callable[[JobStatus], None] | None = None,
        rank: int | None = None,
    ) -> JobStatus:
        """Follow output and record together until the job has ended; returns the final record, however it ended.

        Both functions run in the calling thread, which waits on a queue meanwhile: KeyboardInterrupt reaches it at once.
        `on_status` gets the record as it stands first, and then after every change.
        """
        if on_status is not None:
            on_status(self._status)
        following = Following(self, rank)
        try:
            while (item := following.next()) is not None:
                if isinstance(item, JobStatus):
                    if on_status is not None:
                        on_status(item)
                elif on_page is not None and isinstance(item, LogPage):
                    on_page(item)
        finally:
            following.close()
        return self._status

    def follow_status(self, stop: threading.Event) -> Iterator[JobStatus]:
        """The record after every change from what is known here on, until the job has ended or `stop` is set."""
        status = self._status
        while not status.state.is_terminal and not stop.is_set():
            revision = status.revision
            status = self._client.call_patiently("wait_job", GetJob(job_id=self.id, wait=LONG_POLL_SECONDS, after_revision=revision))
            if status.revision != revision:
                self._status = status
                yield status

    def metrics(self, rank: int | None = None, name: str | None = None) -> MetricTable:
        """What its ranks have logged so far with `gpulayer.log`; of all ranks or of one, all metrics or one.

        Raises:
            NotFound: the job has no such rank.
        """
        self._check_rank(rank)
        return table_of(self.id, self._metric_pages(rank, name))

    def _metric_pages(self, rank: int | None, name: str | None) -> Iterator[MetricPage]:
        after = 0
        while True:
            page: MetricPage = self._client.call_patiently("read_metrics", ReadMetrics(job_id=self.id, rank=rank, name=name, after=after))
            yield page
            if page.complete or page.next == after:
                return
            after = page.next

    def displays(self) -> list[Display]:
        """What its rank 0 has displayed so far, oldest first: values, tables and figures with all their forms."""
        found: list[Display] = []
        after = 0
        while True:
            page: DisplayPage = self._client.call_patiently("read_displays", ReadDisplays(job_id=self.id, after=after))
            found.extend(page.displays)
            if page.complete or page.next == after:
                return found
            after = page.next

    def follow_displays(self, stop: threading.Event | None = None) -> Iterator[Display]:
        """What its rank 0 displays, as it comes, until the job has ended and all is read, or `stop` is set."""
        after = 0
        complete = False
        while not complete and not (stop is not None and stop.is_set()):
            page: DisplayPage = self._client.call_patiently(
                "read_displays", ReadDisplays(job_id=self.id, after=after, wait=LONG_POLL_SECONDS)
            )
            yield from page.displays
            after, complete = page.next, page.complete

    def waterfall(self) -> Waterfall:
        """Where its time went, so far where it has not ended: its own steps and those of each rank (`client.waterfall`)."""
        status = self._status if self._status.state.is_terminal else self.refresh().status
        return Waterfall(waterfall_of(status, time.time()))

    def widget(self) -> Any:
        """A live view of the job as an ordinary widget, to be shown or laid out with others (ipywidgets).

        Raises:
            Unsupported: anywidget is not installed here.
        """
        try:
            from gpulayer_jupyter.widgets.job_widget import JobWidget
        except ImportError as error:
            raise Unsupported("A job's widget needs anywidget here.", found=str(error), fix="pip install 'gpulayer[jupyter]'") from error
        return JobWidget(self)

    # ---- what it left

    @property
    def outputs(self) -> OutputFiles:
        """The files of its output folder by relative path; `node<k>/…` where there were several nodes."""
        return OutputFiles(output_files(self.refresh().status if not self._status.state.is_terminal else self._status))

    def download(self, destination: str | Path) -> list[Path]:
        """Fetch all outputs into a folder and return where they lie."""
        return download_outputs(self._client.transport, self.outputs, Path(destination))

    def weights(self, fit: int = 0) -> dict[str, Any]:
        """The state dict that rank 0's `fit`-th `Trainer.fit` of the job left, counted from 0, on the CPU.

        Raises:
            NotFound: the job left no such weights.
            Unsupported: torch or safetensors is not installed here.
        """
        name = f"weights/fit{fit}.safetensors"
        found = [file for task in self.outputs_by_node() for file in task if file.path == name]
        if not found:
            raise NotFound(
                "The job left no such weights.",
                asked=name,
                found=", ".join(sorted(path for path in self.outputs if path.endswith(".safetensors"))) or "none",
                fix="A job leaves weights when its Trainer.fit has ended.",
            )
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise Unsupported(
                "Loading weights needs torch and safetensors here.", found=str(error), fix="pip install torch safetensors"
            ) from error
        with tempfile.TemporaryDirectory(prefix="gpulayer-weights-") as folder:
            path = Path(folder) / "weights.safetensors"
            self._client.transport.get_artifact(found[0].sha256, path)
            loaded: dict[str, Any] = load_file(path)
            # Tensors may be views of the mapped file, which goes away with the folder.
            return {key: tensor.clone() for key, tensor in loaded.items()}

    def values(self) -> Values:
        """The values that it sent back (`%%gpulayer --fetch`), by name; `.missing` says which could not come back, and why.

        Dataclasses are rebuilt from the classes of the same names here: those of the program's own in `__main__`.

        Raises:
            InvalidSpec: GPULAYER_VALUE_LIMIT_MB is no positive number.
            NotFound: it sent none; only a job that succeeded does.
        """
        from gpulayer.client.values import read_values, value_limit  # few jobs send any

        nodes = self.outputs_by_node()
        namespace = vars(sys.modules["__main__"])
        return read_values(self._client.transport, nodes[0] if nodes else (), most_bytes=value_limit(), namespace=namespace)

    def outputs_by_node(self) -> list[tuple[OutputFile, ...]]:
        """Each node's output files, as the nodes named them."""
        if not self._status.state.is_terminal:
            self.refresh()
        return [task.outputs for task in sorted(self._status.tasks, key=lambda task: task.node)]

    def _check_rank(self, rank: int | None) -> None:
        """Of a rank that there never is, nothing would be read for ever."""
        spec = self._status.spec
        ranks = spec.nodes * spec.devices if isinstance(spec, DistributedJob) else 1
        if rank is not None and not 0 <= rank < ranks:
            raise NotFound(
                "The job has no such rank.",
                asked=f"rank {rank} of job {self.id}",
                found="rank 0 only" if ranks == 1 else f"ranks 0 to {ranks - 1}",
            )

    def _ask(self, request: GetJob) -> Job:
        self._status = self._client.call_patiently("wait_job", request)
        return self
