"""docs/openapi.json is what the table of calls says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gpulayer_server.openapi import document, encoded_document

from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, CALLS, LOG_DOWNLOAD_PATH
from gpulayer.protocol import STREAM_PATH

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_committed_document_is_not_stale() -> None:
    assert COMMITTED.read_bytes() == encoded_document(), "run: python -m gpulayer_server.openapi > docs/openapi.json"


def test_every_call_is_in_it() -> None:
    paths = document()["paths"]
    found = {(path, verb, operation["operationId"]) for path, verbs in paths.items() for verb, operation in verbs.items()}
    expected = {(API_PREFIX + call.path, call.method.lower(), call.name) for call in CALLS.values()}
    artifact = {(API_PREFIX + ARTIFACT_PATH, verb, f"{name}_artifact") for verb, name in (("get", "get"), ("head", "has"), ("put", "put"))}
    besides = {(API_PREFIX + LOG_DOWNLOAD_PATH, "get", "download_log"), (API_PREFIX + STREAM_PATH, "get", "open_stream")}
    assert found == expected | artifact | besides


def test_every_reference_resolves_and_every_schema_is_used() -> None:
    text = encoded_document().decode()
    components = json.loads(text)["components"]
    references = set(re.findall(r'"#/components/(\w+)/(\w+)"', text))
    assert all(name in components[kind] for kind, name in references)
    assert {name for kind, name in references if kind == "schemas"} == set(components["schemas"])


def test_fields_travel_where_the_calls_say() -> None:
    for call in CALLS.values():
        operation: dict[str, Any] = document()["paths"][API_PREFIX + call.path][call.method.lower()]
        places: dict[str, list[str]] = {"path": [], "query": []}
        for parameter in operation["parameters"]:
            places[parameter["in"]].append(parameter["name"])
        assert tuple(places["path"]) == call.path_fields
        fields = set(call.request.__struct_fields__) - set(call.path_fields)
        if call.method == "GET":
            assert set(places["query"]) == fields
            assert "requestBody" not in operation
        else:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            if "$ref" in schema:
                schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
            assert set(schema["properties"]) == fields
