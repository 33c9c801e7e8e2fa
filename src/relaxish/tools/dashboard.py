"""A local page that shows tuning runs while they go on: curves, kernels, failures, the cost model's accuracy, nodes of a
cluster, and several runs side by side.

The page is drawn by the server from the journals of the runs, like the report, and pushed (server-sent events) when they
grow. It loads nothing from elsewhere, and answers requests for this machine's own names only, so that no page of the web can
read it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from ..support.errors import MissingExtraError, RelaxishError
from ..support.units import human_time
from .records import TuningLog, load_log
from .report import STYLE, report_sections
from .svg import PALETTE, Axes

__all__ = ["Dashboard", "make_app", "serve"]

ClusterStatus = Callable[[], list[dict[str, Any]]]
_HEARTBEAT = 15.0
_LOCAL = ["localhost", "127.0.0.1", "[::1]"]
_SCRIPT = """
const draw = state => {
  for (const [id, text] of Object.entries(state.sections)) {
    let node = document.getElementById(id);
    if (!node) { node = document.createElement('section'); node.id = id; document.querySelector('main').append(node); }
    if (node.dataset.text !== text) { node.innerHTML = text; node.dataset.text = text; }
  }
  document.getElementById('state').textContent = 'live, as of ' + state.when;
};
const source = new EventSource('/events');
source.onmessage = event => draw(JSON.parse(event.data));
source.onerror = () => { document.getElementById('state').textContent = 'the server does not answer'; };
"""


class Dashboard:
    """State of the page: the runs in some work directories, and a cluster."""

    def __init__(self, work_dirs: Sequence[str], cluster: ClusterStatus | None = None) -> None:
        if len({os.path.abspath(d) for d in work_dirs}) < len(work_dirs):
            raise RelaxishError("a work directory is given twice")
        self.work_dirs = list(work_dirs)
        self.cluster = cluster
        self._known: dict[str, tuple[Any, TuningLog | str]] = {}

    def _stamp(self, folder: str) -> tuple[tuple[str, int, int], ...]:
        """What tells whether a run has grown."""
        found = []
        for path in sorted(Path(folder).glob("database_*.json")):
            try:
                stat = path.stat()
            except OSError:  # replaced at this very moment
                continue
            found.append((path.name, stat.st_size, stat.st_mtime_ns))
        return tuple(found)

    def _log(self, folder: str) -> TuningLog | str:
        """The run, or why it cannot be shown."""
        stamp = self._stamp(folder)
        known = self._known.get(folder)
        if known is None or known[0] != stamp:
            try:
                log: TuningLog | str = load_log(folder)
            except (RelaxishError, OSError) as err:
                log = str(err)
            known = self._known[folder] = (stamp, log)
        return known[1]

    def sections(self) -> dict[str, str]:
        """The sections of the page as HTML, by their names."""
        out: dict[str, str] = {}
        logs = {folder: self._log(folder) for folder in self.work_dirs}
        if len(logs) > 1:
            out["comparison"] = _comparison({f: log for f, log in logs.items() if isinstance(log, TuningLog)})
        if self.cluster is not None:
            out["cluster"] = _cluster(self.cluster)
        for number, (folder, log) in enumerate(logs.items()):
            title = f"<h1>{html.escape(_name(folder))}</h1>"
            if isinstance(log, str):
                out[f"run{number}"] = f"{title}<p class=note>{html.escape(log)}: waiting for it</p>"
                continue
            for name, text in report_sections(log).items():
                out[f"run{number}-{name}"] = (title if name == "summary" else "") + text
        return out

    def state(self) -> dict[str, Any]:
        """The sections, and when they were drawn."""
        return {"when": time.strftime("%H:%M:%S"), "sections": self.sections()}


def _name(folder: str) -> str:
    return os.path.basename(os.path.abspath(folder))


def _total(log: TuningLog) -> list[tuple[float, float]]:
    """(measured candidates, sum of the best times) whenever it falls, once every kernel has a time."""
    order = sorted(
        ((r.index, t.key, r.seconds) for t in log.tasks for r in t.records), key=lambda item: item[0]
    )  # fmt: skip
    wanted = {t.key for t in log.tasks if t.best is not None}
    best: dict[str, float] = {}
    found: list[tuple[float, float]] = []
    for count, (_, key, seconds) in enumerate(order, 1):
        if seconds is not None and seconds < best.get(key, float("inf")):
            best[key] = seconds
            if len(best) == len(wanted):
                found.append((float(count), sum(best.values())))
    return [*found, (float(len(order)), found[-1][1])] if found else []


def _comparison(logs: dict[str, TuningLog]) -> str:
    curves = {folder: curve for folder, log in logs.items() if (curve := _total(log))}
    if not curves:
        return "<h1>Runs</h1><p class=note>No run has a time for every kernel yet.</p>"
    axes = Axes(
        [x for c in curves.values() for x, _ in c], [y * 1e6 for c in curves.values() for _, y in c],
        x_label="candidates measured", y_label="all kernels, best (us)", log_y=True,
    )  # fmt: skip
    rows, legend = [], []
    for number, (folder, curve) in enumerate(curves.items()):
        color, name = PALETTE[number % len(PALETTE)], html.escape(_name(folder))
        axes.steps([(x, y * 1e6) for x, y in curve], color, name)
        legend.append(f'<span style="color:{color}">&#9632; {name}</span>')
        failed = sum(r.seconds is None for t in logs[folder].tasks for r in t.records)
        rows.append(
            f"<tr><td>{name}</td><td>{curve[-1][0]:.0f}</td><td>{failed}</td><td>{human_time(curve[-1][1])}</td></tr>"
        )
    head = "<tr><th>run</th><th>measured</th><th>failed</th><th>all kernels, best</th></tr>"
    return f'<h1>Runs</h1>{axes.render()}<p class="legend">{"".join(legend)}</p><table>{head}{"".join(rows)}</table>'


def _cluster(status: ClusterStatus) -> str:
    try:
        pools = status()
    except Exception as err:  # the cluster may go and come
        return f"<h1>Cluster</h1><p class=note>{html.escape(' '.join(str(err).split())[:300])}</p>"
    parts = ["<h1>Cluster</h1>"]
    for pool in pools:
        rows = [
            f"<tr><td>{html.escape(str(d['name']))}</td><td>{html.escape(str(d.get('fingerprint', '')))}</td>"
            f"<td>{'measuring' if d['busy'] else 'idle'}</td><td>{d['measured']}</td><td>{d['noise']:.2f}</td></tr>"
            for d in pool["devices"]
        ]
        counts = ", ".join(f"{n} {html.escape(name)}" for name, n in sorted(pool["counts"].items()))
        parts.append(
            f"<h2>{html.escape(str(pool.get('name', 'pool')))}</h2>"
            f"<p>{pool['running']} running, {pool['waiting']} waiting; {counts or 'nothing measured yet'}</p>"
            f"<table><tr><th>device</th><th>processor</th><th>state</th><th>measured</th><th>noise</th></tr>{''.join(rows)}</table>"
        )
        parts += [f"<p class=note>{html.escape(n)}: {html.escape(why)}</p>" for n, why in pool["refused"].items()]
    return "".join(parts) if pools else "<h1>Cluster</h1><p class=note>No pool measures there now.</p>"


def _page() -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relaxish dashboard</title>'
        f"<style>{STYLE}</style></head><body><p id=state class=note>connecting</p><main></main>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def make_app(dashboard: Dashboard, *, interval: float = 1.0, hosts: Sequence[str] = ()) -> Any:
    """The application: ``/`` the page, ``/api/state`` its sections as JSON, ``/events`` them again whenever they change.

    ``hosts`` are further names that requests may be for. Raises MissingExtraError where starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError:
        raise MissingExtraError("dashboard", "starlette", "the dashboard") from None

    # The one script of the page is named by its digest: nothing else runs, whatever a kernel is called.
    script = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; connect-src 'self'"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

    async def page(request: Request) -> Response:
        return HTMLResponse(_page(), headers=headers)

    async def state(request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(dashboard.state), headers=headers)

    async def changes(request: Request) -> AsyncIterator[str]:
        last: dict[str, str] | None = None
        spoken = time.monotonic()
        while not await request.is_disconnected():
            now = await asyncio.to_thread(dashboard.state)
            if now["sections"] != last:
                last, spoken = now["sections"], time.monotonic()
                yield f"data: {json.dumps(now)}\n\n"
            elif time.monotonic() - spoken > _HEARTBEAT:
                spoken = time.monotonic()
                yield ": nothing new\n\n"
            await asyncio.sleep(interval)

    async def events(request: Request) -> Response:
        return StreamingResponse(changes(request), media_type="text/event-stream", headers=headers)

    guard = Middleware(TrustedHostMiddleware, allowed_hosts=[*_LOCAL, *hosts])
    routes = [Route("/", page), Route("/api/state", state), Route("/events", events)]
    return Starlette(routes=routes, middleware=[guard])


def serve(dashboard: Dashboard, host: str = "127.0.0.1", port: int = 8260) -> None:
    """Serve the page until interrupted. Raises MissingExtraError where uvicorn is not installed."""
    app = make_app(dashboard, hosts=[host])
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("dashboard", "uvicorn", "the dashboard") from None
    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=1)
