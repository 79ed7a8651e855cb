"""Routes on MLflow's Flask app: pages, their JSON twins, downloads, the OpenAPI document, headers, errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Flask, Response, jsonify, request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from explainbench import __version__
from explainbench.core.errors import BadInput, Corrupt, ExplainBenchError, Unavailable
from mlflow_plugins.app import charts, graph
from mlflow_plugins.app.boards import as_csv
from mlflow_plugins.app.endpoints import ENDPOINTS, Endpoint
from mlflow_plugins.app.openapi import document
from mlflow_plugins.app.source import Forbidden, NotFound, Source
from mlflow_plugins.app.svg import number

PAGES, API = "/explainbench", "/api/explainbench"
STATIC = Path(__file__).parent / "static"
ASSETS = ("explainbench.css", "mlflow-link.css", "icon.svg")
STATUS = {NotFound: 404, Forbidden: 403, BadInput: 400, Corrupt: 422, Unavailable: 503}
HEADERS = {  # nothing is loaded from elsewhere, nothing runs, nobody frames it, no proxy keeps it
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "private, no-cache",
}
logger = logging.getLogger(__name__)


def register(source: Source) -> Callable[[Any, str], list[str]]:
    """What puts the pages of a source on a Flask app under a static prefix, and returns their exact paths."""

    def add(app: Flask, prefix: str) -> list[str]:
        app.register_blueprint(_blueprint(source, prefix), url_prefix=prefix or None)
        _link_from_mlflow(app, prefix)
        mine = [rule.rule for rule in app.url_map.iter_rules() if rule.endpoint.startswith("explainbench.")]
        assets = [f"{prefix}{PAGES}/static/{name}" for name in ASSETS]
        return [rule for rule in mine if "<" not in rule] + assets

    return add


def _blueprint(source: Source, prefix: str) -> Blueprint:
    pages = Blueprint("explainbench", __name__, static_folder="static", static_url_path=f"{PAGES}/static")
    render = _Renderer(prefix)
    for endpoint in ENDPOINTS:
        page, twin = partial(_page, source, endpoint, render), partial(_json, source, endpoint)
        pages.add_url_rule(f"{PAGES}/{endpoint.path}", endpoint.name, page, methods=["GET"])
        pages.add_url_rule(f"{API}/{endpoint.name}", f"api_{endpoint.name}", twin, methods=["GET"])
    board = next(endpoint for endpoint in ENDPOINTS if endpoint.name == "board")
    pages.add_url_rule(f"{PAGES}/board.csv", "board_csv", partial(_csv, source, board), methods=["GET"])
    pages.add_url_rule(
        f"{PAGES}/api", "api", lambda: render("api.html", {"page": "api", "spec": document(prefix)}), methods=["GET"]
    )
    pages.add_url_rule(f"{API}/openapi.json", "openapi", lambda: jsonify(document(prefix)), methods=["GET"])
    pages.register_error_handler(ExplainBenchError, partial(_said, render))
    pages.register_error_handler(Exception, partial(_unforeseen, render))
    pages.after_request(_secured)
    return pages


def _page(source: Source, endpoint: Endpoint, render: _Renderer) -> Response:
    facts = endpoint.facts(source, endpoint.read(request.args))
    template = "board" if endpoint.name == "live" else endpoint.name
    return render(f"{template}.html", facts | {"page": endpoint.name})


def _json(source: Source, endpoint: Endpoint) -> Response:
    facts = endpoint.facts(source, endpoint.read(request.args))
    answer = jsonify(_plain({key: value for key, value in facts.items() if not key.startswith("_")}))
    if request.args.get("download"):
        answer.headers["Content-Disposition"] = f'attachment; filename="{_file_name(facts, endpoint.name)}.json"'
    return answer


def _csv(source: Source, endpoint: Endpoint) -> Response:
    facts = endpoint.facts(source, endpoint.read(request.args))
    answer = Response(as_csv(facts, facts["rows"]), mimetype="text/csv")
    answer.headers["Content-Disposition"] = f'attachment; filename="{_file_name(facts, "board")}.csv"'
    return answer


def _file_name(facts: Mapping[str, Any], otherwise: str) -> str:
    """A name for a download: ASCII letters, digits and `-._` of the board's name."""
    name = str(facts.get("name") or otherwise)
    return "".join(char if char.isascii() and (char.isalnum() or char in "-._") else "-" for char in name)


def _plain(value: Any) -> Any:
    """Facts as plain JSON; numbers that are not finite become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value


class _Renderer:
    """The templates, with everything escaped that is not markup of our own."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        loader = PackageLoader("mlflow_plugins.app")
        self.templates = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        where = f"{prefix}{PAGES}/static"
        version = sha256((STATIC / ASSETS[0]).read_bytes()).hexdigest()[:8]
        self.templates.globals |= {
            "charts": charts, "graph": graph, "number": number, "link": self.link, "api": self.api,
            "style": f"{where}/{ASSETS[0]}?{version}", "icon": f"{where}/{ASSETS[2]}", "version": __version__,
            "root": f"{prefix}/", "mlflow": self.mlflow,
        }  # fmt: skip

    def __call__(self, template: str, facts: Mapping[str, Any], status: int = 200) -> Response:
        text = self.templates.get_template(f"explainbench/{template}").render(facts)
        answer = Response(text, status, mimetype="text/html")
        if status == 200:
            answer.add_etag()
            answer.make_conditional(request)
        return answer

    def link(self, page: str, parameters: Mapping[str, Any] | None = None) -> str:
        """The permanent address of a page; parameters that say nothing are left out."""
        path = next((endpoint.path for endpoint in ENDPOINTS if endpoint.name == page), page)
        return f"{self.prefix}{PAGES}/{path}{_query(parameters)}"

    def api(self, name: str, parameters: Mapping[str, Any] | None = None) -> str:
        """The address of a JSON endpoint."""
        return f"{self.prefix}{API}/{name}{_query(parameters)}"

    def mlflow(self, run: Mapping[str, Any], file: str = "") -> str:
        """The page of a run in MLflow's UI, or the download of one of its files."""
        if file:
            return f"{self.prefix}/get-artifact?{urlencode({'path': file, 'run_uuid': run['run_id']})}"
        where = f"experiments/{run['experiment_id']}/runs/{run['run_id']}"
        return f"{self.prefix}/#/{where}?workflowType=machine_learning"


def _query(parameters: Mapping[str, Any] | None) -> str:
    said = {
        key: int(value) if isinstance(value, bool) else value
        for key, value in (parameters or {}).items()
        if value not in (None, "", []) and (value is not False or key == "baselines")
    }
    return f"?{urlencode(said, doseq=True)}" if said else ""


def _said(render: _Renderer, error: ExplainBenchError) -> Response:
    """An error that has a sentence: as a page, or as JSON under /api."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 400)
    return _failed(render, status, str(error))


def _unforeseen(render: _Renderer, error: Exception) -> Response:
    """An error nobody thought of: its traceback belongs into the server's log, never on a page."""
    code = getattr(error, "code", None)
    if isinstance(code, int):  # one of HTTP's own, such as a method that is not allowed
        return _failed(render, code, str(getattr(error, "description", error)))
    logger.exception("page %s failed", request.path)
    return _failed(render, 500, f"this page could not be made ({type(error).__name__}); the server's log says why.")


def _failed(render: _Renderer, status: int, sentence: str) -> Response:
    from mlflow_plugins.app.views import without_folder

    sentence = without_folder(sentence)
    if f"{API}/" in request.path:
        answer = jsonify({"error": sentence})
        answer.status_code = status
        return answer
    return render("error.html", {"page": "", "status": status, "sentence": sentence}, status)


def _secured(answer: Response) -> Response:
    for name, value in HEADERS.items():
        answer.headers[name] = value
    return answer


def _link_from_mlflow(app: Flask, prefix: str) -> None:
    """A link to the pages on MLflow's own page, put into the answer on its way out; the UI's files stay untouched."""
    home = {f"{prefix}/", prefix}

    @app.before_request
    def _whole_page() -> None:
        if request.path in home:  # a browser's copy from before this app has no link in it
            request.environ.pop("HTTP_IF_NONE_MATCH", None)
            request.environ.pop("HTTP_IF_MODIFIED_SINCE", None)

    @app.after_request
    def _with_link(answer: Response) -> Response:
        if request.path in home and answer.status_code == 200 and answer.mimetype == "text/html":
            answer.direct_passthrough = False
            where = escape(f"{prefix}{PAGES}")
            added = Markup(
                '<link rel="stylesheet" href="{0}/static/mlflow-link.css">'
                '<a class="explainbench-link" href="{0}/">ExplainBench boards</a></body>'
            ).format(where)
            answer.set_data(answer.get_data(as_text=True).replace("</body>", added, 1))
            answer.headers["Cache-Control"] = "no-cache"
        return answer
