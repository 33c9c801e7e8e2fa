"""An SQL database for those who can reach a port and not the database: JSON by HTTP, read only.

``/workloads`` lists the kernels with their best times, ``/top/HASH?k=10`` the fastest records of one, ``/runs`` the
tuning runs, ``/runs/N`` where the time of one went, ``/records?after=N&limit=1000`` the records themselves in the order
committed, as lines of a journal.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ..support.errors import DatabaseError

if TYPE_CHECKING:
    from ..meta_schedule.database.sql.store import Store

__all__ = ["DatabaseServer"]

_MOST = 10_000


class DatabaseServer:
    """Answers until it is shut down; a context manager. ``port`` 0 takes a free one; ``address`` says which."""

    def __init__(self, store: Store, host: str = "127.0.0.1", port: int = 0) -> None:
        class Handler(_Handler):
            tables = store

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.address = f"http://{host}:{self._server.server_address[1]}/"

    def serve_forever(self) -> None:
        """Answer requests until :meth:`shutdown`, called in another thread, or an interrupt."""
        self._server.serve_forever(poll_interval=0.1)

    def shutdown(self) -> None:
        """End :meth:`serve_forever`."""
        self._server.shutdown()

    def __enter__(self) -> DatabaseServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    tables: Store
    timeout = 30

    def do_GET(self) -> None:
        """Answer one request."""
        address = urlsplit(self.path)
        options = {name: values[-1] for name, values in parse_qs(address.query).items()}
        try:
            found = self._answer(address.path.strip("/").split("/"), options)
        except ValueError as err:
            self._send(HTTPStatus.BAD_REQUEST, {"error": str(err)})
        except DatabaseError as err:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(err)})
        else:
            known = found is not None
            self._send(
                HTTPStatus.OK if known else HTTPStatus.NOT_FOUND, found if known else {"error": f"no {self.path}"}
            )

    def _answer(self, path: list[str], options: dict[str, str]) -> Any:
        match path:
            case ["" | "workloads"]:
                return self.tables.summary()
            case ["top", key]:
                return self._top(key, _number(options.get("k", "10"), "k"))
            case ["runs"]:
                return self.tables.runs()
            case ["runs", number]:
                names = ("workload", "phase", "seconds", "count")
                costs = self.tables.costs(_number(number, "the run"))
                return [dict(zip(names, cost, strict=True)) for cost in costs]
            case ["records"]:
                after, limit = (
                    _number(options.get("after", "0"), "after"),
                    _number(options.get("limit", "1000"), "limit"),
                )
                return self._lines([r["id"] for r in self.tables.numbers(after=after, limit=min(limit, _MOST))])
        return None

    def _top(self, key: str, count: int) -> Any:
        rows = self.tables.workloads(key)
        if not rows:
            return None
        return self._lines([r["id"] for r in self.tables.ranking(rows[0]["id"], min(count, _MOST))])

    def _lines(self, numbers: list[int]) -> list[dict[str, Any]]:
        """Records by number, in the order given."""
        made = {n: (workload, item) for n, workload, item in self.tables.measurements(numbers)}
        lines = []
        for number in numbers:
            workload, item = made[number]
            data = {"trace": item.trace, "run_secs": item.run_secs, "target": item.target, "args_info": item.args_info}
            lines.append({"id": number, "workload": workload, **data, **item.notes})
        return lines

    def _send(self, status: HTTPStatus, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not reported."""


def _number(text: str, name: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise ValueError(f"{name} is a number, not {text[:20]!r}")
    return int(text)
