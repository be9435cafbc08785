"""What a job's output sends to the front end, and when: within its budget, to a view nothing, and the end once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpulayer_jupyter.output.budget import BYTES_A_SECOND, START_BYTES
from gpulayer_jupyter.output.bundle import WIDGET_MIME
from gpulayer_jupyter.output.cell_display import CLAIM_SECONDS, CellDisplay
from support.job_views import page, status_of, view_of

from gpulayer.states import JobState


class Sent:
    """A front end that keeps what it is sent, and a clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.bundles: list[tuple[dict[str, Any], bool]] = []

    def clock(self) -> float:
        return self.now

    def __call__(self, bundle: dict[str, Any], display_id: str, *, update: bool) -> None:
        assert display_id == "d1"
        self.bundles.append((bundle, update))

    @property
    def size(self) -> int:
        return sum(len(json.dumps(bundle)) for bundle, _ in self.bundles)

    def display(self, **options: Any) -> CellDisplay:
        return CellDisplay("d1", clock=self.clock, publish=self, **options)


class Claim:
    is_drawn = False
    closed = False

    def close(self) -> None:
        self.closed = True


class Widget:
    model_id = "m1"
    retired = False

    def retire(self) -> None:
        self.retired = True


@pytest.fixture
def sent() -> Sent:
    return Sent()


def test_one_display_updated_at_most_every_100_ms(sent: Sent) -> None:
    display = sent.display()
    view = view_of()
    display.show(view, [])
    assert display.pending_seconds() == 1.0  # the header's clock
    for number in range(10):
        sent.now += 0.001
        display.show(view, view.add_page(page(0, f"{number}\n", first_line=number)))
    assert len(sent.bundles) == 1
    waiting = display.pending_seconds()
    assert waiting is not None
    assert 0 < waiting <= 0.1
    sent.now += waiting
    display.show(view, [])
    assert len(sent.bundles) == 2
    sent.now += 1
    display.show(view, [])  # nothing has changed
    display.close(view)
    assert [update for _, update in sent.bundles] == [False, True]
    assert sent.bundles[-1][0]["text/plain"].endswith("[rank 0] 9")


@pytest.mark.parametrize(
    ("ranks", "lines", "line"), [(4, 5000, "step {n} loss 0.123456\n"), (1, 200, "x\n"), (64, 300, "word " * 20 + "\n")]
)
def test_traffic_grows_with_the_text(ranks: int, lines: int, line: str, sent: Sent) -> None:
    display = sent.display()
    view = view_of(ranks=max(2, ranks))
    display.show(view, [])
    printed = 0
    for number in range(lines):
        for rank in range(ranks):
            text = line.format(n=number)
            printed += len(text)
            display.show(view, view.add_page(page(rank, text, first_line=number)))
        sent.now += 0.002
    display.close(view)
    assert sent.size <= printed + START_BYTES + 20_000 + sent.now * BYTES_A_SECOND


def test_an_unfinished_line_is_news(sent: Sent) -> None:
    display = sent.display()
    view = view_of()
    display.show(view, [])
    sent.now = 1.0
    display.show(view, view.add_page(page(0, "\r 50%|████     |")))
    assert sent.bundles[-1][0]["text/plain"].endswith("[rank 0]  50%|████     |")


def test_a_state_is_told_at_once_and_without_budget(sent: Sent) -> None:
    display = sent.display()
    view = view_of(state=JobState.QUEUED, started_at=None)
    display.show(view, [])
    display._budget.spend(10_000_000)
    view.status = status_of()
    display.show(view, [])
    assert "starting ranks" in sent.bundles[-1][0]["text/plain"]
    sent.now = 5.0
    display.show(view, view.add_page(page(0, "a\n")))
    assert len(sent.bundles) == 2
    waiting = display.pending_seconds()
    assert waiting is not None
    assert waiting > 0  # nothing spins while there is nothing left to spend


def test_while_a_view_draws_nothing_is_sent_but_the_end(sent: Sent) -> None:
    claim = Claim()
    display = sent.display(claim=claim, make_widget=Widget)
    view = view_of()
    display.show(view, [])
    claim.is_drawn = True
    for number in range(100):
        sent.now += 1
        display.show(view, view.add_page(page(0, f"{number}\n", first_line=number)))
    assert len(sent.bundles) == 1
    assert display.pending_seconds() is None
    view.status = status_of(JobState.SUCCEEDED, ended_at=12.0)
    display.show(view, view.finish())
    display.close(view)
    assert len(sent.bundles) == 2
    assert sent.bundles[-1][0]["text/plain"].endswith("[rank 0] 99")
    assert WIDGET_MIME not in sent.bundles[-1][0]
    assert claim.closed


def test_a_widget_is_made_once_no_view_has_claimed_the_job(sent: Sent) -> None:
    made: list[Widget] = []

    def make() -> Widget:
        made.append(Widget())
        return made[-1]

    display = sent.display(claim=Claim(), make_widget=make)
    view = view_of()
    display.show(view, [])
    assert display.pending_seconds() == 1.0
    sent.now = CLAIM_SECONDS - 0.5
    display.show(view, [])
    assert not made
    assert display.pending_seconds() == pytest.approx(0.5)
    sent.now = CLAIM_SECONDS
    display.show(view, [])
    assert sent.bundles[-1][0][WIDGET_MIME]["model_id"] == "m1"
    before = len(sent.bundles)
    sent.now += 10
    display.show(view, view.add_page(page(0, "a\n")))
    assert len(sent.bundles) == before  # the widget is told by messages of its own
    display.close(view)
    assert [widget.retired for widget in made] == [True]
    assert WIDGET_MIME not in sent.bundles[-1][0]
    assert sent.bundles[-1][0]["text/plain"].endswith("[rank 0] a")


def test_a_job_that_ends_soon_makes_no_widget(sent: Sent) -> None:
    def make() -> Widget:
        raise AssertionError("no widget is needed")

    display = sent.display(claim=Claim(), make_widget=make)
    view = view_of()
    display.show(view, [])
    sent.now = 1.0
    view.status = status_of(JobState.SUCCEEDED, ended_at=11.0)
    display.show(view, view.finish())
    display.close(view)
