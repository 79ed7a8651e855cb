"""An audit as one page of HTML: a graph per chain, every link with what was expected and found. Needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from explainbench.core.files import write_bytes
from mlflow_plugins._chain import PARTS, Chain
from mlflow_plugins.app.graph import draw, nodes

STYLE = Path(__file__).parent / "app" / "static" / "explainbench.css"
WORDS = {"ok": "ok", "broken": "BROKEN", "differs": "differs", "unchecked": "not checked"}
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ExplainBench audit</title>
<style>{{ style }}
td { overflow-wrap: anywhere; vertical-align: top; } .broken td:first-child { font-weight: 700; }</style>
</head>
<body>
<main>
<h1>Audit: {{ "every link holds" if not broken else broken ~ " of " ~ chains | length ~ " chains are broken" }}</h1>
<p>{{ chains | length }} chains, {{ chains | map("first") | map(attribute="links") | map("length") | sum }} links.</p>
{% for chain, graph in chains %}
<details{{ " open" if loop.first or chain.disagreements }}>
<summary><strong>{{ chain.cell }}</strong> {{ chain.cell_id[:16] }}:
{{ "verified" if chain.ok else chain.broken | length ~ " broken" }}, {{ chain.links | length }} links</summary>
{{ graph }}
<table>
<thead>
<tr><th>state</th><th>part</th><th>link</th><th>expected</th><th>found</th><th>detail or likely cause</th></tr>
</thead>
<tbody>
{% for link in chain.links %}
<tr class="{{ link.state }}"><td>{{ words[link.state] }}</td><td>{{ parts[link.part] }}</td><td>{{ link.name }}</td>
<td><code>{{ link.expected }}</code></td><td><code>{{ link.found }}</code></td><td>{{ link.detail }}</td></tr>
{% endfor %}
</tbody>
</table>
</details>
{% endfor %}
</main>
</body>
</html>
"""


def write_page(path: Path, chains: Sequence[Chain]) -> None:
    """Write the page; everything that comes from files or the tracking store is escaped."""
    drawn = [(chain, draw(nodes(chain), f"Chain of {chain.cell}") if chain.cell_id else "") for chain in chains]
    page = Environment(autoescape=True).from_string(TEMPLATE)
    style = Markup(STYLE.read_text(encoding="utf-8")) if STYLE.is_file() else ""
    text = page.render(
        chains=drawn,
        broken=sum(not chain.ok for chain in chains),
        parts={"": "", **PARTS},
        words=WORDS,
        style=style,
    )
    write_bytes(path, text.encode())
