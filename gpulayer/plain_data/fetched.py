"""Where the values that a job sends back lie among its outputs: what both ends of `--fetch` agree on (ADR-0043)."""

from __future__ import annotations

FETCH = "__gpulayer_fetch__"
"""The global of a program that says which values it sends back: `{"names": […], "most_bytes": …}`."""
FOLDER = "fetched"
"""In the job's output folder."""
INDEX = "values.json"
"""There: for each name `{"file": stem}`, or `{"why": reason}` where it can't come back."""
LONGEST_REASON = 300
