"""The dashboard over a real socket, under the test client, and drawn by a headless browser where there is one."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relaxish import lab
from relaxish.meta_schedule import tune_tir
from relaxish.support.errors import MissingExtraError, RelaxishError
from relaxish.tools.dashboard import Dashboard, make_app

pytest.importorskip("starlette")
httpx = pytest.importorskip("httpx")


def tune(folder: Path, trials: int, seed: int = 1) -> None:
    """A replayed run, at once."""
    space = lab.load_space("gemm")
    tune_tir(
        space.mod, space.target, str(folder), trials, num_trials_per_iter=8, space=lab.RecordedGenerator(space),
        builder=lab.ReplayBuilder(space), runner=lab.ReplayRunner(space), validate=False, seed=seed, num_tuning_cores=1,
        strategy="replay-trace", cost_model="random",
    )  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    tune(tmp_path / "first", 8)
    tune(tmp_path / "second <b>", 16, seed=2)
    return tmp_path


def client(dashboard: Dashboard, **options: Any) -> Any:
    from starlette.testclient import TestClient

    return TestClient(make_app(dashboard, **options), base_url="http://localhost")


def test_the_page_shows_runs_and_compares_them(runs: Path) -> None:
    dashboard = Dashboard([str(runs / "first"), str(runs / "second <b>")])
    with client(dashboard) as web:
        page = web.get("/")
        assert page.status_code == 200 and "EventSource" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert not re.search(r"(src|href)=", page.text)  # nothing is loaded from elsewhere
        sections = web.get("/api/state").json()["sections"]
        assert list(sections)[0] == "comparison" and "run0-curves" in sections and "run1-failures" in sections
        assert "second &lt;b&gt;" in sections["comparison"] and "<b>" not in sections["comparison"]
        assert "8 candidates measured" in sections["run0-summary"] and "16 candidates" in sections["run1-summary"]
        assert sections["comparison"].count('class="curve"') == 2
        assert web.get("/", headers={"host": "evil.example"}).status_code == 400
        assert web.post("/").status_code == 405 and web.get("/nothing").status_code == 404


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    dashboard = Dashboard([str(tmp_path / "later")])
    assert "waiting for it" in dashboard.sections()["run0"]
    tune(tmp_path / "later", 8)
    assert "8 candidates measured" in dashboard.sections()["run0-summary"]
    (tmp_path / "later" / "database_tuning_record.json").write_text("rubbish\n")
    assert "waiting for it" in dashboard.sections()["run0"]
    with pytest.raises(RelaxishError, match="twice"):
        Dashboard([str(tmp_path), str(tmp_path / ".." / tmp_path.name)])


@pytest.fixture
def server(runs: Path) -> Iterator[tuple[str, Path]]:
    uvicorn = pytest.importorskip("uvicorn")
    app = make_app(Dashboard([str(runs / "first")]), interval=0.05)
    made = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=made.run)
    thread.start()
    end = time.monotonic() + 60
    while not made.started and time.monotonic() < end:
        time.sleep(0.02)
    port = made.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", runs
    made.should_exit = True
    thread.join(60)


def next_data(lines: Iterator[str], seconds: float) -> str:
    """The next event's text. Heartbeats hold a stream open for ever, so that the stream's own time limit says nothing."""
    end = time.monotonic() + seconds
    for line in lines:
        if line.startswith("data: "):
            return line[6:]
        assert time.monotonic() < end, "nothing is pushed but heartbeats"
    raise AssertionError("the stream has ended")


def test_what_is_measured_meanwhile_is_pushed(server: tuple[str, Path]) -> None:
    url, runs = server
    with httpx.stream("GET", f"{url}/events", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        first = json.loads(next_data(lines, 60))
        assert "8 candidates measured" in first["sections"]["run0-summary"]
        tune(runs / "first", 24, seed=5)
        seen: list[str] = []
        end = time.monotonic() + 60
        while not any("32 candidates measured" in text for text in seen):
            seen.append(json.loads(next_data(lines, end - time.monotonic()))["sections"].get("run0-summary", ""))


class Browser:
    """A page in a headless Chromium, asked by its debugging protocol."""

    def __init__(self, program: str, folder: Path) -> None:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={folder}"]  # fmt: skip
        self.process = subprocess.Popen(
            [program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        port = folder / "DevToolsActivePort"
        wait_for(lambda: port.exists() and len(port.read_text().splitlines()) == 2)
        pages = httpx.get(f"http://127.0.0.1:{port.read_text().splitlines()[0]}/json/list", timeout=60).json()
        where = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self.socket = pytest.importorskip("websockets.sync.client").connect(where, max_size=None, open_timeout=60)
        self.number = 0

    def ask(self, method: str, **params: Any) -> Any:
        """The answer to a command."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv(timeout=60))).get("id") != self.number:
            pass
        return answer["result"]

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        """End it."""
        self.socket.close()
        self.process.kill()
        self.process.wait(60)


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("there is no Chromium here that could draw the page")
    made = Browser(program, tmp_path / "profile")
    yield made
    made.close()


@pytest.mark.slow
def test_a_browser_draws_it_and_what_comes_later(server: tuple[str, Path], browser: Browser) -> None:
    url, runs = server
    browser.ask("Log.enable")
    browser.ask("Page.navigate", url=url)
    text = "document.getElementById('run0-summary')?.innerText ?? ''"
    wait_for(lambda: "8 candidates measured" in browser.value(text))
    wait_for(lambda: browser.value("document.getElementById('state').textContent").startswith("live"))
    # Curves are drawn: they have an extent on the screen.
    assert browser.value("[...document.querySelectorAll('.curve')].some(c => c.getBBox().width > 50)")
    assert browser.value("document.body.scrollWidth <= window.innerWidth")
    tune(runs / "first", 24, seed=5)
    wait_for(lambda: "32 candidates measured" in browser.value(text))
    # The policy of the page lets nothing of others run in it.
    browser.value("document.querySelector('main').innerHTML = '<img src=x onerror=window.evil=1>'")
    time.sleep(0.2)
    assert browser.value("window.evil") is None


def test_the_nodes_of_a_cluster_are_shown(runs: Path) -> None:
    device = {"name": "ab/0", "node": "ab", "measured": 7, "noise": 1.5, "busy": True, "fingerprint": "EPYC <1>"}
    pool = {
        "name": "relaxish-pool:box", "devices": [device], "running": 1, "waiting": 3, "counts": {"finished": 7},
        "refused": {"cd/0": "another processor"},
    }  # fmt: skip
    text = Dashboard([str(runs / "first")], lambda: [pool]).sections()["cluster"]
    assert "EPYC &lt;1&gt;" in text and "measuring" in text and "3 waiting" in text and "another processor" in text

    def broken() -> list[dict[str, Any]]:
        raise ConnectionError("no <cluster>")

    assert "no &lt;cluster&gt;" in Dashboard([str(runs / "first")], broken).sections()["cluster"]
    assert "No pool" in Dashboard([str(runs / "first")], list).sections()["cluster"]


def test_scalars_go_to_tensorboard_and_mlflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand-ins with the methods of the real packages that are called."""
    import sys
    import types

    from relaxish.meta_schedule.measure_callback import MeasureCallback, MLflowCallback, TensorBoardCallback

    written: list[tuple[str, float, int]] = []
    logged: list[tuple[dict[str, float], int]] = []

    class Writer:
        def __init__(self, logdir: str) -> None:
            self.logdir = logdir

        def add_scalar(self, tag: str, data: float, step: int) -> None:
            written.append((tag, data, step))

        def flush(self) -> None: ...

    board, mlflow = types.ModuleType("tensorboard.summary"), types.ModuleType("mlflow")
    board.Writer = Writer  # type: ignore[attr-defined]
    mlflow.log_metrics = lambda metrics, step: logged.append((metrics, step))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "tensorboard.summary", board)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    default = MeasureCallback.create("default")
    assert isinstance(default, list)
    space = lab.load_space("softmax")
    database = tune_tir(
        space.mod, space.target, str(tmp_path), 16, num_trials_per_iter=8, space=lab.RecordedGenerator(space),
        builder=lab.ReplayBuilder(space), runner=lab.ReplayRunner(space), validate=False, seed=3, num_tuning_cores=1,
        strategy="replay-trace", cost_model="random",
        measure_callbacks=[*default, TensorBoardCallback("logs"), MLflowCallback()],  # type: ignore[arg-type]
    )  # fmt: skip
    best = min(r.run_secs[0] for r in database.get_all_tuning_records() if r.run_secs)
    steps = [step for tag, _, step in written if tag == "failed"]
    assert steps == [8, 16] and [step for _, step in logged] == steps
    assert written[-2][0] == "main/best_us" and math.isclose(written[-2][1], best * 1e6, rel_tol=1e-6)
    assert logged[-1][0]["main/best_us"] == written[-2][1]
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"relaxish\[mlflow\]"):
        MLflowCallback()


def test_progress_is_shown_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from relaxish.meta_schedule.measure_callback import LiveProgress

    space = lab.load_space("softmax")
    with LiveProgress(trials=16) as progress:
        tune_tir(
            space.mod, space.target, str(tmp_path), 16, num_trials_per_iter=8, space=lab.RecordedGenerator(space),
            builder=lab.ReplayBuilder(space), runner=lab.ReplayRunner(space), validate=False, seed=3, num_tuning_cores=1,
            strategy="replay-trace", cost_model="random", measure_callbacks=progress.callbacks(),  # type: ignore[arg-type]
        )  # fmt: skip
    assert progress.measured == 16 and progress.failed == 0 and math.isfinite(progress.best[0])
    assert progress.bar.tasks[0].finished


def test_a_notebook_shows_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins with what is used of the real packages."""
    import sys
    import types
    from importlib.machinery import ModuleSpec

    from relaxish.meta_schedule.measure_callback import LiveProgress

    class Widget:
        def __init__(self, *children: Any, **values: Any) -> None:
            self.children, self.value = children, ""
            self.__dict__.update(values)

    class ZMQInteractiveShell: ...

    shown: list[Any] = []
    widgets, ipython, display = (types.ModuleType(n) for n in ("ipywidgets", "IPython", "IPython.display"))
    widgets.FloatProgress = widgets.HTML = widgets.HBox = Widget  # type: ignore[attr-defined]
    widgets.__spec__ = ModuleSpec("ipywidgets", None)
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    display.display = shown.append  # type: ignore[attr-defined]
    for module in (widgets, ipython, display):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    result = types.SimpleNamespace(run_secs=[2e-3], error_msg=None)
    with LiveProgress(trials=8) as progress:
        progress.advance(0, "gemm <1>", [result, result])
        assert shown == [progress.bar.box]
        assert progress.bar.bar.value == 0.25 and "gemm &lt;1&gt;: 2" in progress.bar.text.value
        progress.phase("final check", 1, 2)
        assert progress.bar.text.value == "final check: 1 of 2 kernels" and progress.bar.bar.value == 0.25
    assert progress.bar.bar.bar_style == "success"
    monkeypatch.setattr(ipython, "get_ipython", lambda: None)
    assert type(LiveProgress(trials=8).bar).__name__ == "Progress"
