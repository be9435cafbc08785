"""The OpenAPI 3.1 document of the HTTP interface, generated from the table of calls and the message types.

`python -m gpulayer_server.openapi > docs/openapi.json` writes the committed copy; a test says when that is stale.
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import msgspec

from gpulayer._version import __version__
from gpulayer.calls import API_PREFIX, ARTIFACT_PATH, CALLS, LOG_DOWNLOAD_PATH, Call
from gpulayer.protocol import PROTOCOL_VERSION, STREAM_PATH, Message

_JSON = "application/json"
_BYTES = "application/octet-stream"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "status", "message"],
            "properties": {
                "code": {"type": "string"},
                "status": {"type": "integer"},
                "message": {"type": "string"},
                "asked": {"type": ["string", "null"]},
                "found": {"type": ["string", "null"]},
                "fix": {"type": ["string", "null"]},
                "details": {"type": "object"},
            },
        }
    },
}


def document() -> dict[str, Any]:
    """The whole document, as plain JSON."""
    messages = sorted({kind for call in CALLS.values() for kind in (call.request, call.response)}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(messages, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS.values():
        paths.setdefault(API_PREFIX + call.path, {})[call.method.lower()] = _operation(call, schemas)
    paths[API_PREFIX + ARTIFACT_PATH] = _artifact_operations()
    paths[API_PREFIX + LOG_DOWNLOAD_PATH] = {"get": _log_download()}
    paths[API_PREFIX + STREAM_PATH]["get"] = _stream()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GPUlayer",
            "version": __version__,
            "description": f"Protocol {PROTOCOL_VERSION}. Paths are below the Jupyter server's base URL.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"gpulayer": []}, {"jupyter": []}],
        "paths": paths,
        "components": {
            "schemas": {**_used(paths, schemas), "Error": _ERROR},
            "responses": {
                "Error": {
                    "description": "What went wrong, what was asked, what was found, what to do",
                    "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
            "securitySchemes": {
                "gpulayer": {"type": "http", "scheme": "bearer", "description": "A client, worker or join token of GPUlayer"},
                "jupyter": {"type": "apiKey", "in": "header", "name": "Authorization", "description": "Jupyter's `token …`, or its cookie"},
            },
        },
    }


@functools.cache
def encoded_document() -> bytes:
    """The document as JSON text, the same bytes for the same version."""
    return json.dumps(document(), indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def _operation(call: Call, schemas: dict[str, Any]) -> dict[str, Any]:
    fields = _fields(call.request, schemas)
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.summary,
        "x-roles": sorted(role.value for role in call.roles),
        "x-action": call.action.value,
        "parameters": [{"name": name, "in": "path", "required": True, "schema": fields["properties"][name]} for name in call.path_fields],
        "responses": {
            "200": {"description": "Answered", "content": {_JSON: {"schema": _reference(call.response)}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    rest = {name: schema for name, schema in fields["properties"].items() if name not in call.path_fields}
    required = [name for name in fields.get("required", ()) if name in rest]
    if call.method == "GET":
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": schema} for name, schema in rest.items()
        ]
    else:
        body = {"type": "object", "properties": rest, "required": required} if call.path_fields else _reference(call.request)
        operation["requestBody"] = {"required": bool(required), "content": {_JSON: {"schema": body}}}
    return operation


def _fields(message: type[Message], schemas: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = schemas[message.__name__]
    return fields


def _reference(message: type[Message]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{message.__name__}"}


def _used(paths: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas that something refers to: requests that travel as path and query only are none."""
    used: dict[str, Any] = {}
    waiting = [paths]
    while waiting:
        text = json.dumps(waiting.pop())
        for name, schema in schemas.items():
            if name not in used and f'"#/components/schemas/{name}"' in text:
                used[name] = schema
                waiting.append(schema)
    return used


def _artifact_operations() -> dict[str, Any]:
    digest = {"name": "sha256", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
    count = {"type": "integer", "minimum": 0}
    error = {"$ref": "#/components/responses/Error"}
    roles = ["client", "worker"]
    content = {_BYTES: {"schema": {"type": "string", "format": "binary"}}}
    return {
        "head": {
            "operationId": "has_artifact",
            "summary": "Is it here",
            "x-roles": roles,
            "parameters": [digest],
            "responses": {"200": {"description": "It is, complete"}, "404": {"description": "It is not"}},
        },
        "get": {
            "operationId": "get_artifact",
            "summary": "Its bytes",
            "x-roles": roles,
            "parameters": [digest],
            "responses": {"200": {"description": "The bytes", "content": content}, "default": error},
        },
        "put": {
            "operationId": "put_artifact",
            "summary": "One part of at most 32 MiB; the last one checks the digest",
            "x-roles": roles,
            "parameters": [
                digest,
                {"name": "offset", "in": "query", "required": True, "schema": count},
                {"name": "total", "in": "query", "required": True, "schema": count},
            ],
            "requestBody": {"required": True, "content": content},
            "responses": {
                "200": {
                    "description": "Stored",
                    "content": {
                        _JSON: {
                            "schema": {
                                "type": "object",
                                "required": ["complete", "offset"],
                                "properties": {"complete": {"type": "boolean"}, "offset": count},
                            }
                        }
                    },
                },
                "default": error,
            },
        },
    }


def _log_download() -> dict[str, Any]:
    return {
        "operationId": "download_log",
        "summary": "A job's whole output as a file",
        "x-roles": ["client"],
        "x-action": "read",
        "parameters": [
            {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "rank", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 0}},
            {"name": "form", "in": "query", "required": False, "schema": {"enum": ["plain", "raw"], "default": "plain"}},
        ],
        "responses": {
            "200": {"description": "All there is at the moment", "content": {"text/plain": {"schema": {"type": "string"}}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


def _stream() -> dict[str, Any]:
    return {
        "operationId": "open_stream",
        "summary": "A WebSocket with all that a browser's tab follows (docs: Wire and errors, The stream)",
        "x-roles": ["client"],
        "x-action": "read",
        "parameters": [{"name": "Upgrade", "in": "header", "required": True, "schema": {"const": "websocket"}}],
        "responses": {"101": {"description": "Open"}, "default": {"$ref": "#/components/responses/Error"}},
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(encoded_document())
