"""Syntax highlighting of scripts in terminals and notebooks."""

from __future__ import annotations


import sys

__all__ = ["cprint"]


def _format(text: str) -> str:
    try:
        import black  # type: ignore[import-not-found]
    except ImportError:
        print("black is not installed; the script is shown as it is", file=sys.stderr)
        return text
    return str(black.format_str(text, mode=black.FileMode()))


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def cprint(printable: str, style: str | None = None, black_format: bool | None = None) -> None:
    """Print a node or script with colours.

    ``style`` is ``light``, ``dark``, ``ansi`` or the name of any pygments style; without pygments or a terminal
    the text is printed plain.
    """
    text = printable if isinstance(printable, str) else printable.script()
    if black_format:
        text = _format(text)
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter, Terminal256Formatter
        from pygments.lexers import Python3Lexer
    except ImportError:
        print(text)
        return
    chosen = _style(style)
    if _in_notebook():
        from IPython import display  # type: ignore[import-not-found]

        formatter = HtmlFormatter(style=chosen)
        formatter.noclasses = True
        display.display(display.HTML(highlight(text, Python3Lexer(), formatter)))
    elif style is not None or sys.stdout.isatty():
        print(highlight(text, Python3Lexer(), Terminal256Formatter(style=chosen)).rstrip("\n"))
    else:
        print(text)


def _style(name: str | None) -> str | type | None:
    return {"light": "default", "dark": "monokai", "ansi": "bw", None: "default"}.get(name, name)
