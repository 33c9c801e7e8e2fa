"""``relaxish dashboard``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..support.errors import RelaxishError


def _cluster_status(address: str) -> Callable[[], list[dict[str, Any]]]:
    """A function that asks the measuring pools of a cluster how they are."""
    from ..meta_schedule.distributed import pool_statuses

    return lambda: pool_statuses(address)


@click.command("dashboard", help="Show the runs in WORK_DIRS on a local page while they go on.")
@click.argument("work_dirs", nargs=-1, required=True)
@click.option("--cluster", metavar="ADDRESS", help="Show the measuring devices of this Ray cluster, too.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Who may connect: by default this machine only.")
@click.option("--port", default=8260, show_default=True, type=click.IntRange(1, 65535))
def command(work_dirs: tuple[str, ...], cluster: str | None, host: str, port: int) -> None:
    """The command."""
    from ..tools.dashboard import Dashboard, serve

    if host in ("0.0.0.0", "::"):
        raise RelaxishError("the dashboard has no password; give the address of one network, or tunnel to 127.0.0.1")
    shown = Dashboard(work_dirs, None if cluster is None else _cluster_status(cluster))
    click.echo(f"http://{host}:{port}/ (Ctrl+C ends it)", err=True)
    serve(shown, host, port)
