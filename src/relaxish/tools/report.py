"""The HTML report of a tuning run: curves, time by task, cost-model accuracy, best schedules and traces.

One file with inline SVG and no scripts or assets from elsewhere, so that it can be mailed and archived.
"""

from __future__ import annotations

import html
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ..support.errors import RelaxishError
from .records import Record, Task, TuningLog, left_out_text, load_log
from .statistics import spearman
from .svg import PALETTE, Axes, bars

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#1e293b;background:#fff}
h1{font-size:1.6em}h2{margin-top:2em;border-bottom:1px solid #cbd5e1}
table{border-collapse:collapse;width:100%;font-size:.93em}
td,th{padding:.25em .7em;text-align:right;border-bottom:1px solid #e2e8f0}
td:first-child,th:first-child{text-align:left}
pre{background:#f1f5f9;padding:.8em;overflow:auto;font-size:.85em;max-height:32em}
svg{width:100%;height:auto;font-size:12px}svg text{fill:#475569}.grid{stroke:#e2e8f0}.curve{fill:none;stroke-width:2}
summary{cursor:pointer;font-weight:600}.note{color:#64748b}.legend span{margin-right:1em}
@media(prefers-color-scheme:dark){body{background:#0f172a;color:#e2e8f0}pre{background:#1e293b}
svg text{fill:#94a3b8}.grid{stroke:#334155}td,th{border-color:#334155}}
"""


def write_report(work_dir: str, output: str, *, title: str | None = None) -> str:
    """Write the report of the database in ``work_dir``; returns the path."""
    page = render_report(load_log(work_dir), title or os.path.basename(os.path.abspath(work_dir)))
    path = Path(output)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as err:
        raise RelaxishError(f"cannot write {output}: {err.strerror}") from None
    return str(path)


def render_report(log: TuningLog, title: str) -> str:
    """The page as text."""
    body = "\n".join(s for s in [*report_sections(log).values(), _winners(_by_time(log))] if s)
    head = f"<title>{html.escape(title)}: tuning report</title><style>{STYLE}</style>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}</head>'
        f"<body><h1>Tuning report: {html.escape(title)}</h1>{body}</body></html>\n"
    )


def _by_time(log: TuningLog) -> list[Task]:
    return sorted((t for t in log.tasks if t.records), key=lambda t: -(t.best_seconds or 0.0))


def report_sections(log: TuningLog) -> dict[str, str]:
    """Sections of a run's report as HTML, by name: the parts that change while the run goes on."""
    tasks = _by_time(log)
    return {
        "summary": _summary(log, tasks),
        "curves": _curves(tasks),
        "time": _time_by_task(tasks),
        "accuracy": _accuracy(tasks),
        "failures": _failures(tasks),
    }


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.2f}"


def _summary(log: TuningLog, tasks: Sequence[Task]) -> str:
    total = sum(len(t.records) for t in tasks)
    failed = sum(1 for t in tasks for r in t.records if r.seconds is None)
    facts = [
        f"{len(tasks)} kernels, {total} candidates measured, {failed} failed",
        f"target: <code>{html.escape(log.target)}</code>" if log.target else "",
        f"machine: {html.escape(log.hardware)}" if log.hardware else "",
        f"left out: {html.escape(left_out_text(log.left_out))}" if log.left_out else "",
        f"written {time.strftime('%Y-%m-%d %H:%M')}",
    ]
    rows = []
    for task in tasks:
        gain = f"{task.gain:.2f}x" if task.gain else "-"
        bad = sum(1 for r in task.records if r.seconds is None)
        cells = [
            html.escape(task.name),
            str(len(task.records)),
            str(bad),
            _us(task.default),
            _us(task.best_seconds),
            gain,
        ]
        rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    header = "".join(f"<th>{h}</th>" for h in ("kernel", "trials", "failed", "default (us)", "best (us)", "gain"))
    lines = "".join(f"<p>{f}</p>" for f in facts if f)
    note = "<p class=note>Gain: the best schedule against the default one, measured in turns.</p>"
    return f"{lines}<h2>Kernels</h2><table><tr>{header}</tr>{''.join(rows)}</table>{note}"


def _curves(tasks: Sequence[Task]) -> str:
    curves = [(t, t.curve()) for t in tasks]
    curves = [(t, c) for t, c in curves if c]
    if not curves:
        return "<h2>Tuning curves</h2><p class=note>No candidate ran successfully yet.</p>"
    shown = curves[: len(PALETTE)]
    parts = []
    axes = Axes(
        [float(n) for _, c in shown for n, _ in c],
        [s / c[-1][1] for _, c in shown for _, s in c] + [1.0],
        x_label="trials of the kernel", y_label="time / best time", log_y=True,
    )  # fmt: skip
    for (task, curve), color in zip(shown, PALETTE, strict=False):
        axes.steps([(float(n), s / curve[-1][1]) for n, s in curve], color, task.name)
        parts.append(f'<span style="color:{color}">&#9632; {html.escape(task.name)}</span>')
    more = f"<p class=note>The {len(shown)} slowest of {len(curves)} kernels.</p>" if len(curves) > len(shown) else ""
    return f'<h2>Tuning curves</h2>{axes.render()}<p class="legend">{"".join(parts)}</p>{more}'


def _time_by_task(tasks: Sequence[Task]) -> str:
    rows = [(t.name, t.best_seconds) for t in tasks if t.best_seconds is not None]
    if not rows:
        return ""
    total = sum(s for _, s in rows)
    shown = [(name, s, f"{s * 1e6:,.1f} us, {100 * s / total:.1f} %") for name, s in rows[:20]]
    stamps = sorted(r.time for t in tasks for r in t.records if r.time is not None)
    wall = (
        f"<p class=note>Measuring took {stamps[-1] - stamps[0]:.0f} s from first to last record.</p>"
        if len(stamps) > 1
        else ""
    )
    return f"<h2>Time by kernel (best schedules, one call each)</h2>{bars(shown)}{wall}"


def _accuracy(tasks: Sequence[Task]) -> str:
    """Predicted score against measured throughput relative to the kernel's best."""
    points: list[tuple[float, float]] = []
    rows = []
    for task in tasks:
        best = task.best_seconds
        good: list[tuple[Record, float, float]] = [
            (r, r.predicted, best / r.seconds) for r in task.records
            if best and r.seconds and r.predicted is not None
        ]  # fmt: skip
        pairs = [(p, m) for _, p, m in good]
        points += pairs
        rank = spearman([p for p, _ in pairs], [m for _, m in pairs]) if len(pairs) > 2 else math.nan
        if math.isfinite(rank):
            rows.append(f"<tr><td>{html.escape(task.name)}</td><td>{len(pairs)}</td><td>{rank:.3f}</td></tr>")
    if not points:
        return "<h2>Cost model</h2><p class=note>The records hold no predictions.</p>"
    axes = Axes(
        [p for p, _ in points], [m for _, m in points], x_label="predicted score", y_label="measured: best time / time"
    )
    axes.dots(points[:4000], PALETTE[0])
    table = f"<table><tr><th>kernel</th><th>predictions</th><th>rank correlation</th></tr>{''.join(rows)}</table>"
    return f"<h2>Cost model</h2>{axes.render()}{table if rows else ''}"


def _failures(tasks: Sequence[Task]) -> str:
    reasons: dict[str, int] = {}
    for task in tasks:
        for record in task.records:
            if record.seconds is None:
                lines = record.error.strip().splitlines()
                reason = lines[-1][:160] if lines else "no reason recorded"
                reasons[reason] = reasons.get(reason, 0) + 1
    if not reasons:
        return ""
    ranked = sorted(reasons.items(), key=lambda kv: -kv[1])[:20]
    rows = "".join(f"<tr><td>{html.escape(r)}</td><td>{n}</td></tr>" for r, n in ranked)
    return f"<h2>Failures</h2><table><tr><th>reason</th><th>count</th></tr>{rows}</table>"


def _winners(tasks: Sequence[Task]) -> str:
    parts = []
    for task in tasks:
        best = task.best
        if best is None:
            continue
        parts.append(
            f"<details><summary>{html.escape(task.name)}: {_us(best.seconds)} us "
            f"(trial {task.records.index(best) + 1} of {len(task.records)})</summary>"
            f"<h4>Trace</h4><pre>{html.escape(best.trace_text())}</pre>"
            f"<h4>Program before scheduling</h4><pre>{html.escape(task.script)}</pre></details>"
        )
    return "<h2>Best schedules</h2>" + "".join(parts) if parts else ""
