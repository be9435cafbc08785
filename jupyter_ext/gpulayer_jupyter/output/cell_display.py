"""A job's output below its cell: one display with several representations, and what is sent to it when.

While a view of the lab extension draws the job nothing is sent, for it reads the server itself. Where the front end draws widgets,
one is made; elsewhere the text is rewritten within a budget. The end is written once. Runs in the kernel's main thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Protocol

from gpulayer.client.log_lines import LogLine
from gpulayer_jupyter.output.budget import START_BYTES, TrafficBudget
from gpulayer_jupyter.output.bundle import final_bundle, live_bundle
from gpulayer_jupyter.output.view_text import JobView

UPDATE_SECONDS = 0.1
"""Lines are gathered this long."""
TICK_SECONDS = 1.0
"""How often the header's clock goes on while nothing else is new."""
CLAIM_SECONDS = 1.5
"""How long a view of the lab extension may take to say that it draws the job."""


class Claim(Protocol):
    """Whether a view draws the job by itself (`claims.ViewClaim`)."""

    @property
    def is_drawn(self) -> bool: ...

    def close(self) -> None: ...


class Widget(Protocol):
    """As much as the display needs of a widget."""

    model_id: str

    def retire(self) -> None: ...


class CellDisplay:
    """One display below the cell.

    Args:
        display_id: unique to the job.
        claim: None where no view can draw it.
        make_widget: None where the front end is not known to draw widgets.
        publish: sends a bundle; of tests.
    """

    def __init__(
        self,
        display_id: str,
        *,
        claim: Claim | None = None,
        make_widget: Callable[[], Widget] | None = None,
        clock: Callable[[], float] = time.monotonic,
        publish: Any = None,
    ) -> None:
        self._id = display_id
        self._claim = claim
        self._make_widget = make_widget
        self._widget: Widget | None = None
        self._clock = clock
        self._publish = publish or _publish
        self._budget = TrafficBudget(clock)
        self._began = clock()
        self._shown: dict[str, Any] | None = None
        self._state: str | None = None
        self._words = ""
        self._size = 0
        self._printed = 0
        self._last = 0.0
        self._stale = False
        self._ticks = False
        self._has_ended = False

    def show(self, view: JobView, lines: list[LogLine]) -> None:
        self._ticks = view.status.started_at is not None and view.status.ended_at is None
        self._stale = self._stale or bool(lines) or view.received_bytes != self._printed or view.state_words() != self._words
        self._printed = view.received_bytes
        self._has_ended = view.status.state.is_terminal
        if self._shown is None:
            self._draw(view)
        elif self._is_drawn() or view.status.state.is_terminal:
            return  # its end is `close`'s
        elif self._make_widget is not None and self._clock() - self._began >= CLAIM_SECONDS:
            self._begin_widget(view)
        elif view.status.state != self._state or self._may_send(0 if self._stale else START_BYTES // 2):
            self._draw(view)

    def pending_seconds(self) -> float | None:
        if self._is_drawn() or (self._shown is not None and self._has_ended):
            return None
        waits = []
        if self._make_widget is not None:
            waits.append(self._began + CLAIM_SECONDS - self._clock())
        if self._stale:
            waits.append(max(self._last + UPDATE_SECONDS - self._clock(), self._budget.seconds_until(self._size, self._printed)))
        if self._ticks:
            waits.append(TICK_SECONDS)
        return max(0.0, min(waits)) if waits else None

    def close(self, view: JobView) -> None:
        if self._claim is not None:
            self._claim.close()
        self._send(final_bundle(view))
        if self._widget is not None:
            self._widget.retire()
            self._widget = None

    def _is_drawn(self) -> bool:
        return self._widget is not None or (self._claim is not None and self._claim.is_drawn)

    def _may_send(self, spare: int) -> bool:
        if self._clock() - self._last < UPDATE_SECONDS:
            return False
        return self._budget.left(self._printed) - spare >= self._size

    def _begin_widget(self, view: JobView) -> None:
        make, self._make_widget = self._make_widget, None
        assert make is not None
        self._widget = make()
        self._send(live_bundle(view, widget=self._widget.model_id))

    def _draw(self, view: JobView) -> None:
        self._stale = False
        self._state, self._words = view.status.state, view.state_words()
        self._send(live_bundle(view))

    def _send(self, bundle: dict[str, Any]) -> None:
        if bundle == self._shown:
            return
        self._publish(bundle, self._id, update=self._shown is not None)
        self._size = len(json.dumps(bundle))
        self._budget.spend(self._size)
        self._shown, self._last = bundle, self._clock()


def _publish(bundle: dict[str, Any], display_id: str, *, update: bool) -> None:
    from IPython.display import display, update_display

    if update:
        update_display(bundle, display_id=display_id, raw=True)
    else:
        display(bundle, display_id=display_id, raw=True)
