"""A real JupyterLab with its own folder and home that runs for the length of a ``with`` block."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from web import free_ports

START_SECONDS = 900
STOP_SECONDS = 20

# Keep all cells in the page; fetch no news, check for no updates; save nothing that a test has not saved.
SETTINGS = {
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none", "recordTiming": False},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


class JupyterServer:
    """JupyterLab on ``root``, started with the options of the Makefile; everything it writes goes below ``home``."""

    def __init__(self, root: Path, home: Path, **environment: str) -> None:
        self.root, self.home = root, home
        self.log = home / "server.log"
        self.url = ""
        self._extra = environment
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "JupyterServer":
        self.home.mkdir(parents=True, exist_ok=True)
        for plugin, values in SETTINGS.items():
            self.set(plugin, values)
        for _ in range(3):  # another process may take the free port before the server does
            if self._start():
                return self
        raise AssertionError(f"JupyterLab did not start; its log ends:\n{self.log_tail()}")

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._stop(self._process)

    def set(self, plugin: str, values: dict) -> None:
        """Write the user settings of a JupyterLab plug-in; they apply when the page next loads."""
        path = self.home / "settings" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def _start(self) -> bool:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ServerApp.jpserver_extensions={'jupytext': False}",
            f"--ServerApp.root_dir={self.root}",
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            "--ServerApp.terminals_enabled=False",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.1)
        self._stop(self._process)
        return False

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "IPYTHON", "XDG_", "MPL", "PYTHONPATH"))
        }
        home = str(self.home)
        return {
            **kept,
            "PATH": str(Path(sys.executable).parent) + os.pathsep + kept["PATH"],
            "HOME": home,
            "JUPYTER_CONFIG_DIR": f"{home}/config",
            "JUPYTER_DATA_DIR": f"{home}/data",
            "JUPYTER_RUNTIME_DIR": f"{home}/runtime",
            "IPYTHONDIR": f"{home}/ipython",
            "JUPYTERLAB_SETTINGS_DIR": f"{home}/settings",
            "JUPYTERLAB_WORKSPACES_DIR": f"{home}/workspaces",
            **self._extra,
        }

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api", timeout=2) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError):
            return False

    @staticmethod
    def _stop(process: subprocess.Popen) -> None:
        """Terminate the server gently first, so that it ends its kernels, which have their own process groups."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(timeout=STOP_SECONDS)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue
