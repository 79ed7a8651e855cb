"""The OpenAPI 3.1 document of the JSON endpoints, made from the table of endpoints and the shapes of their answers."""

from __future__ import annotations

from typing import Any

from explainbench import __version__
from mlflow_plugins.app.boards import COLUMNS
from mlflow_plugins.app.endpoints import ENDPOINTS, Endpoint, Parameter

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
FLAG: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": ["number", "null"]}
NUMBERS: Schema = {"type": "array", "items": {"type": "number"}}
WORDS: Schema = {"type": "object", "additionalProperties": TEXT}
ANYTHING: Schema = {"type": ["object", "null"]}


def _fields(properties: dict[str, Schema], optional: tuple[str, ...] = (), nullable: bool = False) -> Schema:
    """An object whose properties are all there, but for the optional ones."""
    kind = ["object", "null"] if nullable else "object"
    return {"type": kind, "properties": properties, "required": [key for key in properties if key not in optional]}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


_HEAD = {
    **dict.fromkeys(("name", "suite", "task", "score", "title", "basis", "context", "weights", "view", "model"), TEXT),
    **{"protocol": TEXT, "n": WHOLE, "entries": WHOLE, "confidence": NUMBER, "counted": TEXT, "higher_is_better": FLAG},
}
_ROW = dict.fromkeys(("entry", "status", "reason", "weights_source", "cell", "cell_id", "beside"), TEXT) | {
    **dict.fromkeys(("mean", "low", "high", "p_vs_above", "effect"), NUMBER),
    **{key: {"type": ["integer", "null"]} for key in ("order", "rank_ub", "group")},
    **{"baseline": FLAG, "verified": FLAG, "aliases": TEXTS},
}
_STAT = _fields({"mean": NUMBER, "low": NUMBER, "high": NUMBER, "n": WHOLE})
_SPAN = _fields({"start": WHOLE, "stop": WHOLE, "value": NUMBER, "group": TEXT})
_HEAT = _fields(
    {
        **dict.fromkeys(("origin", "regime", "target", "unit", "scale"), TEXT),
        **{"window": WHOLE, "count": WHOLE, "curve": NUMBERS, "times": TEXTS, "largest": NUMBER, "signed": FLAG},
        "channels": _list({"type": "array", "prefixItems": [TEXT, _list(_SPAN)]}),
        **{"output": NUMBER, "filled": NUMBER},
    },
    nullable=True,
)
_RUN = _fields(
    dict.fromkeys(("run_id", "experiment_id", "name", "kind", "cell", "protocol", "started", "state"), TEXT),
    nullable=True,
)
_IDENTITY = dict.fromkeys(
    ("cell_id", "record_sha256", "suite", "task", "model", "method", "title", "protocol", "weights_source"), TEXT
) | {"deterministic": FLAG, "baseline": FLAG, "runs": WHOLE, "run": ANYTHING, "files": TEXTS}
_PAIR = dict.fromkeys(("score", "kind", "how", "reason"), TEXT) | {
    **{"n": WHOLE, "n_zero": WHOLE, "points": NUMBERS},
    **dict.fromkeys(
        ("a", "b", "difference", "low", "high", "p", "p_holm", "effect", "effect_low", "effect_high"), NUMBER
    ),
}
_LINK = dict.fromkeys(("name", "expected", "found", "detail", "part", "state"), TEXT) | {
    "ok": {"type": ["boolean", "null"]}
}
_MAYBE = {"type": ["string", "null"]}
_CELL_FACTS = {
    **_IDENTITY,
    **{"remarks": TEXTS, "confidence": NUMBER, "skipped": {"type": "object"}, "parameters": WORDS, "notes": ANYTHING},
    "scores": _list(
        _fields(
            {
                "metric": TEXT,
                "kind": TEXT,
                "by": {"type": "object", "additionalProperties": _STAT},
                "points": {"type": "object", "additionalProperties": NUMBERS},
            }
        )
    ),
    **{"seeds": ANYTHING, "provenance": WORDS, "sources": WORDS, "libraries": WORDS, "measured": ANYTHING},
    **{"heat": _HEAT, "windows": TEXTS, "evaluations": NUMBER, "gradients": NUMBER},
}
_BOARD = _fields(
    {
        **_HEAD,
        **{"heading": TEXT, "caption": TEXT, "notes": TEXTS, "sources": TEXTS, "asked": {"type": "object"}},
        **{
            "total": WHOLE,
            "count": WHOLE,
            "groups": WHOLE,
            "siblings": _list(_fields(_HEAD)),
            "rows": _list(_fields(_ROW)),
        },
    }
)
ANSWERS: dict[str, Schema] = {
    "boards": _fields(
        {
            **{"suite": TEXT, "suites": TEXTS, "source": TEXT, "banner": TEXT, "remarks": TEXTS, "choice": WORDS},
            "choices": {"type": "object", "additionalProperties": TEXTS},
            **{"count": WHOLE, "tasks": TEXTS, "metrics": TEXTS},
            "families": _list(_fields({**_HEAD, "leaders": TEXTS, "boards": _list(_fields(_HEAD))})),
            "empty": _list(_fields({**_HEAD, "reasons": TEXTS})),
        }
    ),
    "board": _BOARD,
    "live": _BOARD,
    "cell": _fields({"cell": _MAYBE, "names": TEXTS, **_CELL_FACTS}, optional=tuple(_CELL_FACTS)),
    "lineage": _fields(
        {
            **{"cell": _MAYBE, "names": TEXTS, "ok": FLAG, "cell_id": TEXT, "run_id": _MAYBE, "seconds": NUMBER},
            "links": _list(_fields(_LINK)),
        },
        optional=("ok", "cell_id", "run_id", "seconds", "links"),
    ),
    "compare": _fields(
        {
            **{"asked": TEXTS, "names": TEXTS, "remarks": TEXTS, "pairs": _list(_fields(_PAIR)), "confidence": NUMBER},
            **{side: _fields({"cell": TEXT, **_IDENTITY, "heat": _HEAT}, nullable=True) for side in ("a", "b")},
        },
        optional=("confidence",),
    ),
    "runs": _fields(
        {
            **{"suite": TEXT, "suites": TEXTS, "filter": TEXT, "experiment_id": TEXT, "runs": _list(_RUN)},
            "next": _MAYBE,
        }
    ),
    "diff": _fields(
        {
            **{"a": _RUN, "b": _RUN, "asked": TEXTS, "same": WHOLE, "all": FLAG},
            "changes": _list(_fields({"section": TEXT, "key": TEXT, "a": _MAYBE, "b": _MAYBE})),
        }
    ),
}
FAILURES = {
    "400": "a parameter is not as described",
    "401": "log in (only under basic auth)",
    "403": "the experiment may not be read by this user",
    "404": "nothing has that name",
    "422": "stored bytes are not what they were stored as",
    "503": "the tracking store cannot be used now",
}


def document(prefix: str = "") -> dict[str, Any]:
    """The whole document; prefix: the server's static prefix."""
    paths = {f"/api/explainbench/{endpoint.name}": {"get": _operation(endpoint)} for endpoint in ENDPOINTS}
    board = next(endpoint for endpoint in ENDPOINTS if endpoint.name == "board")
    as_csv = {"description": "rows", "content": {"text/csv": {"schema": TEXT}}}
    paths["/explainbench/board.csv"] = {
        "get": {
            "operationId": "board_csv",
            "summary": f"The rows of a board as CSV: {', '.join(COLUMNS)}",
            "parameters": [_parameter(one) for one in board.parameters],
            "responses": {"200": as_csv, **_failures()},
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ExplainBench",
            "version": __version__,
            "description": "Boards, cells, lineage and runs, read-only. Answers say what pages show.",
        },
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {"schemas": {"Error": _fields({"error": TEXT})}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answer = {"description": "the facts", "content": {"application/json": {"schema": ANSWERS[endpoint.name]}}}
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            *(_parameter(one) for one in endpoint.parameters),
            {
                "name": "download",
                "in": "query",
                "description": "offer the answer as a file",
                "schema": FLAG,
            },
        ],
        "responses": {"200": answer, **_failures()},
    }


def _failures() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {code: {"description": about, "content": content} for code, about in FAILURES.items()}


def _parameter(one: Parameter) -> dict[str, Any]:
    schema: Schema = {"type": one.kind} if one.kind != "array" else TEXTS
    if one.values:
        schema = schema | {"enum": list(one.values)}
    if one.kind == "boolean":
        schema = schema | {"default": one.default}
    return {"name": one.name, "in": "query", "required": one.needed, "description": one.about, "schema": schema}
