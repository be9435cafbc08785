"""The forms in which a value can be shown, as notebooks ask for them: `_repr_html_` and its like, a figure's PNG, and text always.

Nothing is imported for it: what libraries a value comes from are loaded. Runs in the rank.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import sys
import traceback
from collections.abc import Container
from typing import Any

Forms = dict[str, bytes]
"""By MIME type; JSON types hold JSON, text is UTF-8, everything else its own bytes."""

TEXT = "text/plain"
MOST_TEXT = 64 * 1024
_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
    "application/pdf": "_repr_pdf_",
}
_NOWHERE = frozenset({"application/vnd.jupyter.widget-view+json"})
"""Needs a kernel that holds the widget."""
_ANYTHING = "_ipython_canary_method_should_not_exist_"
"""An object that has this one answers to every name."""


def forms_of(value: object, *, include: Container[str] | None = None, exclude: Container[str] = ()) -> tuple[Forms, dict[str, Any]]:
    """All its forms, and what is to be known of them besides (`metadata` of notebooks).

    What a method raises goes to stderr, and its form is left out.
    """
    found: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if (png := _figure_png(value)) is not None:
        found["image/png"] = png
    bundle = _ask(value, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(bundle, tuple) and len(bundle) == 2:
        bundle, told = bundle
        metadata.update(told if isinstance(told, dict) else {})
    if isinstance(bundle, dict):
        found.update(bundle)
    for mime, method in _METHODS.items():
        # Both would say the same: an image of PIL has all formats that there are.
        if mime in found or (mime in ("image/jpeg", "application/pdf") and "image/png" in found):
            continue
        form = _ask(value, method)
        if isinstance(form, tuple) and len(form) == 2:
            form, told = form
            if isinstance(told, dict) and told:
                metadata[mime] = told
        if form is not None:
            found[mime] = form
    if not isinstance(found.get(TEXT), str | bytes):
        found[TEXT] = text_of(value)
    forms, _ = encode_forms(found)
    return {
        mime: data for mime, data in forms.items() if (include is None or mime in include or mime == TEXT) and mime not in exclude
    }, metadata


def text_of(value: object) -> str:
    """Its `repr`, not too long; what that raises goes to stderr."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the user's code
        tell_traceback()
        return f"<{type(value).__module__}.{type(value).__qualname__} object that can't be shown>"
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}\n… and {len(text) - MOST_TEXT:,} more characters"


def encode_forms(data: dict[str, Any]) -> tuple[Forms, list[str]]:
    """Forms as they are given by `_repr_mimebundle_` or `display(raw=True)`; and why some of them are none, which is told as well."""
    forms: Forms = {}
    refused = []
    for mime, value in data.items():
        if not isinstance(mime, str) or "/" not in mime or mime in _NOWHERE or value is None:
            continue
        try:
            forms[mime] = _encode(mime, value)
        except (ValueError, TypeError, binascii.Error) as error:
            refused.append(f"{mime}: {error}")
            print(f"display: {refused[-1]}", file=sys.stderr)  # noqa: T201 - the job's own log
    return forms, refused


def is_text(mime: str) -> bool:
    """Whether this type's data is text."""
    return mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript") or _is_json(mime)


def _is_json(mime: str) -> bool:
    return mime == "application/json" or mime.endswith("+json")


def _encode(mime: str, value: Any) -> bytes:
    if _is_json(mime):
        return json.dumps(value).encode()
    if isinstance(value, list | tuple):
        value = "".join(value)  # as notebooks keep text of many lines
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise TypeError(f"text or bytes are wanted, and this is {type(value).__module__}.{type(value).__qualname__}")
    return value.encode(errors="replace") if is_text(mime) else base64.b64decode("".join(value.split()), validate=True)


def find_method(value: object, name: str) -> Any:
    """A method of that name that is meant: not a class's own, and not that of an object that has every name."""
    if isinstance(value, type):
        return None
    try:
        if getattr(value, _ANYTHING, None) is not None:
            return None
        method = getattr(value, name, None)
    except Exception:  # noqa: BLE001 - the user's `__getattr__`
        return None
    return method if callable(method) else None


def _ask(value: object, name: str, **options: Any) -> Any:
    method = find_method(value, name)
    if method is None:
        return None
    try:
        return method(**options)
    except NotImplementedError:
        return None
    except Exception:  # noqa: BLE001 - the user's code
        tell_traceback()
        return None


def _figure_png(value: object) -> bytes | None:
    """A figure of Matplotlib, as notebooks draw it: cut to what is on it."""
    module = sys.modules.get("matplotlib.figure")
    if module is None or not isinstance(value, module.Figure):
        return None
    if not (value.axes or value.lines or value.images or value.texts):
        return None
    file = io.BytesIO()
    try:
        value.savefig(file, format="png", dpi=value.dpi, bbox_inches="tight", facecolor=value.get_facecolor())
    except Exception:  # noqa: BLE001 - what is drawn is the user's, and so may be what draws it
        tell_traceback()
        return None
    return file.getvalue()


def tell_traceback() -> None:
    """The error that is being handled, without the frame that called into the user's code."""
    kind, error, tail = sys.exc_info()
    traceback.print_exception(kind, error, tail.tb_next if tail is not None else None)
