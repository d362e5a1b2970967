from __future__ import annotations

import signal
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from standalone import server_process
from standalone.errors import StackError
from standalone.postgres import HOST, free_port
from standalone.server_process import ServerProcess


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://{HOST}:{port}", timeout=120) as response:
            return bool(response.status == 200)
    except URLError:
        return False


def test_server_answers_from_its_start_to_its_stop(tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    port, server = free_port(), ServerProcess("Files", tmp_path, tmp_path / "log")
    server.start([sys.executable, "-m", "http.server", "--bind", HOST, str(port)], lambda: answers(port))
    with urlopen(f"http://{HOST}:{port}", timeout=120) as response:
        assert b"a_file" in response.read()
    server.stop()
    assert not answers(port)
    server.stop()


def test_server_that_ends_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    server = ServerProcess("Files", tmp_path, tmp_path / "log")
    with pytest.raises(StackError, match=r"(?s)Files does not respond. The end of .*:\nno room"):
        server.start([sys.executable, "-c", "raise SystemExit('no room')"], lambda: False)


def test_server_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    server = ServerProcess("Slow", tmp_path, tmp_path / "log")
    with pytest.raises(StackError, match="Slow does not respond"):
        server.start([sys.executable, "-c", "import time; time.sleep(600)"], lambda: False, seconds=0.5)
    assert server._process is not None
    assert server._process.returncode == -signal.SIGTERM


@pytest.mark.long
def test_server_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "STOP_SECONDS", 0.2)
    ready = tmp_path / "ready"
    script = f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w'); time.sleep(600)"
    server = ServerProcess("Stubborn", tmp_path, tmp_path / "log")
    server.start([sys.executable, "-c", script], ready.exists)
    server.stop()
    assert server._process is not None
    assert server._process.returncode == -signal.SIGKILL
