"""What every dataset must satisfy, as a Great Expectations suite, and its result as JSON and a self-contained page."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from explainbench.core.arrays import Texts
from explainbench.core.dataset import Series

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

STEP_MINUTES = 15
SHOWN = 5  # broken rows named in a message
# Physical limits of the channels this benchmark knows; other channels only have to be finite.
RANGES = {
    "load_mw": (0.0, 200_000.0),
    "energy_price_usd_mwh": (-1_000.0, 10_000.0),
    "temperature_c": (-60.0, 60.0),
    "solar_mw": (0.0, 200_000.0),
    "wind_mw": (0.0, 200_000.0),
}
FINITE = (-1e12, 1e12)


@dataclass(frozen=True, slots=True)
class Rule:
    """One expectation and how it is said: which column, and what must hold there."""

    column: str
    text: str
    expectation: Expectation


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What is checked: a series (name, rows it must have if known), with its rules."""

    name: str
    frame: Any  # pandas DataFrame
    rules: Sequence[Rule]


def _gx() -> Any:
    """Great Expectations, imported with its analytics off."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it imports sre_constants
        import great_expectations

    return great_expectations


def series_table(name: str, series: Series, rows: int) -> Table:
    """Rules of a series: schema, types, `rows` rows, an exact quarter-hour UTC grid, finite values in range."""
    import pandas as pd

    expect = _gx().expectations
    frame = pd.DataFrame(series.values, columns=list(series.names))
    frame.insert(0, "timestamp", pd.DatetimeIndex(series.stamps.astype("datetime64[s]")).tz_localize("UTC"))
    steps = np.diff(series.stamps).astype("timedelta64[m]").astype(np.int64)
    frame["step_minutes"] = np.concatenate([[STEP_MINUTES], steps])
    frame["minute_of_quarter"] = series.stamps.astype("datetime64[m]").astype(np.int64) % STEP_MINUTES
    columns = ["timestamp", *series.names, "step_minutes", "minute_of_quarter"]
    rules = [
        Rule(
            "(table)",
            "columns are the stamp and the channels, in order",
            expect.ExpectTableColumnsToMatchOrderedList(column_list=columns),
        ),
        Rule("(table)", f"there are {rows} rows", expect.ExpectTableRowCountToEqual(value=rows)),
        Rule("timestamp", "no stamp is missing", expect.ExpectColumnValuesToNotBeNull(column="timestamp")),
        Rule("timestamp", "no stamp occurs twice", expect.ExpectColumnValuesToBeUnique(column="timestamp")),
        Rule(
            "timestamp",
            "stamps are on the quarter-hour in UTC",
            expect.ExpectColumnValuesToBeInSet(column="minute_of_quarter", value_set=[0]),
        ),
        Rule(
            "timestamp",
            "each row is 15 minutes after the one before: no gap, no clock change",
            expect.ExpectColumnValuesToBeInSet(column="step_minutes", value_set=[STEP_MINUTES]),
        ),
    ]
    for channel in series.names:
        low, high = RANGES.get(channel, FINITE)
        rules += [
            Rule(
                channel,
                "values are 64-bit floats",
                expect.ExpectColumnValuesToBeOfType(column=channel, type_="float64"),
            ),
            Rule(channel, "no value is missing", expect.ExpectColumnValuesToNotBeNull(column=channel)),
            Rule(
                channel,
                f"values are finite and from {low:g} to {high:g}",
                expect.ExpectColumnValuesToBeBetween(column=channel, min_value=low, max_value=high),
            ),
        ]
    return Table(name, frame, rules)


def coverage_tables(regimes: Mapping[str, Texts], wanted: Sequence[str]) -> list[Table]:
    """Rules of regime coverage: every regime occurs among a task's target blocks; regimes: task -> (n,) names."""
    import pandas as pd

    expect = _gx().expectations
    return [
        Table(
            f"target blocks of {task}",
            pd.DataFrame({"regime": found.astype(object)}),
            [
                Rule(
                    "regime",
                    f"each of {', '.join(wanted)} occurs among the target blocks",
                    expect.ExpectColumnDistinctValuesToContainSet(column="regime", value_set=list(wanted)),
                )
            ],
        )
        for task, found in regimes.items()
    ]


def validate(dataset: str, tables: Iterable[Table]) -> dict[str, Any]:
    """Run every rule. Returns {dataset, success, library, tables: {name: {rows, rules: [...]}}}; no clock, no ids."""
    library = _gx()
    result: dict[str, Any] = {"dataset": dataset, "library": f"great_expectations {library.__version__}", "tables": {}}
    context = library.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_pandas("frames")
    for table in tables:
        suite = library.ExpectationSuite(name=table.name)
        for number, rule in enumerate(table.rules):
            rule.expectation.meta = {"rule": number}
            suite.add_expectation(rule.expectation)
        batch = source.add_dataframe_asset(table.name).add_batch_definition_whole_dataframe("all")
        found = batch.get_batch(batch_parameters={"dataframe": table.frame}).validate(suite, result_format="COMPLETE")
        outcomes = {outcome.expectation_config.meta["rule"]: outcome for outcome in found.results}
        result["tables"][table.name] = {
            "rows": len(table.frame),
            "rules": [_outcome(rule, outcomes[number], table) for number, rule in enumerate(table.rules)],
        }
    result["success"] = all(rule["success"] for table in result["tables"].values() for rule in table["rules"])
    return result


def _outcome(rule: Rule, outcome: Any, table: Table) -> dict[str, Any]:
    measured = outcome.result
    broken = [int(row) for row in measured.get("unexpected_index_list") or []]
    if rule.expectation.expectation_type.endswith("_be_in_set") and "timestamp" in table.frame:
        values = [str(table.frame["timestamp"].iloc[row]) for row in broken[:SHOWN]]
    else:
        values = [str(value) for value in (measured.get("unexpected_list") or [])[:SHOWN]]
    entry = {
        "column": rule.column,
        "rule": rule.text,
        "expectation": rule.expectation.expectation_type,
        "success": bool(outcome.success),
        "broken": int(measured.get("unexpected_count", 0)),
        "broken_rows": broken[:SHOWN],
        "broken_values": values,
    }
    if "observed_value" in measured:
        entry["observed"] = str(measured["observed_value"])
    if outcome.exception_info.get("raised_exception"):
        entry["error"] = str(outcome.exception_info.get("exception_message"))
    return entry


def failure(result: Mapping[str, Any]) -> str | None:
    """One sentence about the first broken rule (table, column, rows, rule), or None where all hold."""
    broken = [
        (name, rule) for name, table in result["tables"].items() for rule in table["rules"] if not rule["success"]
    ]
    if not broken:
        return None
    name, rule = broken[0]
    if rule["broken_rows"]:
        rows = ", ".join(map(str, rule["broken_rows"]))
        more = f" and {rule['broken'] - len(rule['broken_rows'])} more" if rule["broken"] > SHOWN else ""
        where = f"row {rows}{more} ({', '.join(rule['broken_values'])})"
    else:
        where = f"found {rule.get('observed') or rule.get('error') or 'otherwise'}"
    others = f"; {len(broken) - 1} further rules are broken" if len(broken) > 1 else ""
    return f"{result['dataset']}, {name}, column {rule['column']!r}: {rule['rule']} - broken at {where}{others}."


def page(result: Mapping[str, Any], described: Mapping[str, str], picture: str | None) -> str:
    """The result as one HTML page without scripts or outside files but the picture beside it."""
    verdict = "all rules hold" if result["success"] else "some rules are broken"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>Data validation: {html.escape(result['dataset'])}</title><style>",
        "body{font:15px/1.45 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}",
        "table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.3rem .6rem;",
        "border-bottom:1px solid #ddd;vertical-align:top}.ok{color:#1a7f37}.bad{color:#b42318;font-weight:600}",
        "code{font-size:.85em;color:#555}img{max-width:100%}</style></head><body>",
        f"<h1>Data validation: {html.escape(result['dataset'])}</h1>",
        f"<p class='{'ok' if result['success'] else 'bad'}'>{verdict} ({html.escape(result['library'])})</p><table>",
    ]
    parts += [f"<tr><th>{html.escape(key)}</th><td>{html.escape(value)}</td></tr>" for key, value in described.items()]
    parts.append("</table>")
    sentence = failure(result)
    if sentence is not None:
        parts.append(f"<p class='bad'>{html.escape(sentence)}</p>")
    for name, table in result["tables"].items():
        parts.append(f"<h2>{html.escape(name)} <small>({table['rows']} rows)</small></h2><table>")
        parts.append("<tr><th></th><th>column</th><th>rule</th><th>broken</th></tr>")
        for rule in table["rules"]:
            mark = "<td class='ok'>holds</td>" if rule["success"] else "<td class='bad'>broken</td>"
            rows = ", ".join(f"row {row}" for row in rule["broken_rows"])
            broken = "" if rule["success"] else rows or str(rule.get("observed") or rule.get("error") or "")
            parts.append(
                f"<tr>{mark}<td>{html.escape(rule['column'])}</td><td>{html.escape(rule['rule'])}<br>"
                f"<code>{html.escape(rule['expectation'])}</code></td><td>{html.escape(broken)}</td></tr>"
            )
        parts.append("</table>")
    if picture is not None:
        parts.append(f"<h2>Plausibility</h2><img src='{html.escape(picture)}' alt='Weeks, price curve and load map'>")
    return "".join((*parts, "</body></html>\n"))
