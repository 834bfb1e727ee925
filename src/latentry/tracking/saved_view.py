"""The saved views of the experiment's page, as experiment tags: "size x loss" with its columns and charts, and one SAE's explanations.

The page shows neither size nor score by itself. The format is MLflow's own and undocumented (read off 3.17.2), so it
is written here only, and a page that does not understand it shows its usual one.
"""

import base64
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

VIEW = "size-x-loss"
EXPLANATIONS = "explanations"
TAG = "mlflow.sharedViewState."
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
CURRENT_CELLS = "tags.kind = 'cell' and tags.superseded = 'false'"

_FIXED = ("0", "1", "attributes.`Run Name`")
_LAST = ("runDateAndNestInfo", "duration")
"""Columns that the page always has, by its own names: parameters would else stand behind all metrics, out of sight."""
_CHARTS_IN_A_ROW = 2
"""Of more than two the titles cannot be read on a usual screen."""
_OTHER_SECTIONS = ("sae", "training", "cost")
_SIZE, _LOSS, _L0 = "d_sae", "loss", "l0"


def view_tags(runs_with: Mapping[str, Collection[str]], sae: str) -> dict[str, str]:
    """The tags, from the headline metric of each scorer (`detection/auroc_random`) with the runs that have it, by any names.

    Explanations stand side by side by latent, and latents of two SAEs have nothing in common but their number: so that view
    is of one SAE, and another is typed in its place.
    """
    state = _state(runs_with)
    found = {VIEW: _view("size x loss", state)}
    if sae:
        mine = {**state, "searchFilter": f"{CURRENT_CELLS} and tags.sae = '{sae}'"}
        found[EXPLANATIONS] = _view("explanations of one SAE", mine)
    return {f"{TAG}{key}": value for key, value in found.items()}


def _view(name: str, state: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "createdAt": 0, "updatedAt": 0, "state": _packed(state)})


def shown_together(runs_with: Mapping[str, Collection[str]]) -> list[str]:
    """The metrics that half of the runs have at once: the page's parallel coordinates leave out a run that lacks one of them.

    So a cell that failed costs its run's line, and a scorer that reads no explanation, whose scores stand in runs of their own, its axis.
    """
    kept, left = set[str](), set[str]()
    for metric in sorted(runs_with, key=lambda name: -len(runs_with[name])):
        both = left & set(runs_with[metric]) if kept else set(runs_with[metric])
        if both and 2 * len(both) >= max(map(len, runs_with.values())):
            kept, left = kept | {metric}, both
    return [metric for metric in runs_with if metric in kept]


def _packed(state: Mapping[str, Any]) -> str:
    """Compressed: a tag of a SQLite store holds 5,000 characters."""
    return "deflate;" + base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()


def _state(runs_with: Mapping[str, Collection[str]]) -> dict[str, Any]:
    metrics = list(runs_with)
    columns = [f"params.`{name}`" for name in (_SIZE, _LOSS, "explainer")]
    columns += [f"metrics.`{name}{end}`" for end in ("", "_lift") for name in metrics]
    columns += ["metrics.`sae/l0`", "metrics.`sae/fvu`"]
    return {
        "searchFilter": CURRENT_CELLS,
        "orderByKey": f"metrics.`{metrics[0]}`" if metrics else "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "columnOrder": [*_FIXED, *columns, *_LAST],
        "columnWidths": {name: _width(name) for name in columns},
        "runsHiddenMode": "SHOWALL",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
        "compareRunSections": [*_sections(), *_closed_sections(metrics)],
        "compareRunCharts": _charts(metrics, shown_together(runs_with)),
    }


def _width(column: str) -> int:
    """Pixels in which a column's name can be read."""
    return max(80, 7 * len(column.split("`")[1]) + 16)


def _sections() -> list[dict[str, Any]]:
    titles = {
        "all": "Size, loss and L0 against the scores",
        "size": "Score against size",
        "l0": "Score against L0",
        "score": "Score of every run",
        "lift": "Lift of every run",
    }
    return [
        {
            "uuid": key,
            "name": name,
            "display": True,
            "isReordered": False,
            "columns": 1 if key == "all" else _CHARTS_IN_A_ROW,
            "cardHeight": 400,
        }
        for key, name in titles.items()
    ]


def _closed_sections(metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Where the page puts the charts that it draws of every other metric, by what stands before the stroke: shut, so that they are
    neither in the way nor drawn until asked for.
    """
    names = dict.fromkeys([*(metric.partition("/")[0] for metric in metrics), *_OTHER_SECTIONS])
    return [{"uuid": f"more-{name}", "name": name, "display": False, "isReordered": False} for name in names]


def _charts(metrics: Sequence[str], together: Sequence[str]) -> list[dict[str, Any]]:
    parallel = {"type": "PARALLEL", "selectedParams": ["log2_d_sae", _LOSS, _L0], "selectedMetrics": list(together), "showAllRuns": False}
    charts = [_chart("all", "parallel", parallel)]
    for number, metric in enumerate(metrics):
        charts.append(_chart("size", f"size-{number}", _scatter(_SIZE, metric)))
        charts.append(_chart("l0", f"l0-{number}", _scatter(_L0, metric)))
        charts.append(_chart("score", f"bar-{number}", {"type": "BAR", "metricKey": metric}))
        charts.append(_chart("lift", f"lift-{number}", {"type": "BAR", "metricKey": f"{metric}_lift"}))
    return charts


def _scatter(param: str, metric: str) -> dict[str, Any]:
    return {"type": "SCATTER", "xaxis": {"key": param, "type": "PARAM"}, "yaxis": {"key": metric, "type": "METRIC"}}


def _chart(section: str, uuid: str, card: Mapping[str, Any]) -> dict[str, Any]:
    return {"uuid": uuid, "deleted": False, "isGenerated": False, "metricSectionId": section, "runsCountToCompare": 50, **card}
