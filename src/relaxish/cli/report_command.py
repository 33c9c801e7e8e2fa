"""``relaxish report``."""

from __future__ import annotations

import click

from .common import writable_file


@click.command("report", help="Write one self-contained HTML file about the tuning run in WORK_DIR.")
@click.argument("work_dir")
@click.option("-o", "--output", default=None, help="File to write; default: WORK_DIR/report.html.")
@click.option("--title", default=None, help="Heading of the page.")
def command(work_dir: str, output: str | None, title: str | None) -> None:
    """The command."""
    from ..tools.records import load_log
    from ..tools.report import write_report

    load_log(work_dir)
    path = writable_file(output or f"{work_dir}/report.html")
    click.echo(write_report(work_dir, str(path), title=title))
