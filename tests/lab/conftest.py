"""A real JupyterLab with a real kernel, driven by a real browser.

``make test-lab`` installs JupyterLab into ``.venv-lab`` and runs these tests; without
it they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess

import nbformat
import pytest
from playwright.sync_api import expect, sync_playwright

from book.tools.browser import find_chromium
from book.tools.notebooks import KERNEL
from book.tools.repository import ROOT

LAB = ROOT / ".venv-lab" / "bin" / "jupyter-lab"
OPTIONS = ["--no-browser", "--port=0", "--ServerApp.port_retries=0", "--allow-root"]
PATIENCE = 60_000  # milliseconds; a kernel that imports torch takes some of them
QUIET = {
    "@jupyterlab/apputils-extension:notification": {
        "checkForUpdates": False,
        "fetchNews": "false",
    },
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the notebooks lie that JupyterLab opens."""
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="session")
def lab_url(folder, tmp_path_factory):
    """Address of a notebook in a running JupyterLab, with its token."""
    if not LAB.is_file():
        pytest.skip("JupyterLab is not installed: run `make test-lab`")
    home = tmp_path_factory.mktemp("home")
    (home / "overrides.json").write_text(json.dumps(QUIET))
    told = {"PYTHONPATH": str(ROOT), "HOME": str(home), "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [str(LAB), *OPTIONS, f"--LabApp.app_settings_dir={home}"],
        cwd=folder,
        env={**os.environ, **told},
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in server.stderr:
        if found := re.search(
            r"(http://(?:localhost|127\.0\.0\.1):\d+/)lab(\S+)", line
        ):
            break
    # A workspace of its own: a common one would open the notebooks before, too.
    yield found[1] + "lab/workspaces/{name}/tree/{name}.ipynb" + found[2]
    server.terminate()
    server.wait()


@pytest.fixture(scope="session")
def browser():
    """One Chromium for the whole session."""
    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--headless", "--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_notebook(folder, lab_url, browser):
    """Open a notebook with these cells in JupyterLab; runs them to their last words."""
    contexts = []

    def open_notebook(name, *cells, last_words):
        made = map(nbformat.v4.new_code_cell, cells)
        notebook = nbformat.v4.new_notebook(cells=list(made))
        notebook.metadata.kernelspec = KERNEL
        nbformat.write(notebook, folder / f"{name}.ipynb")
        # JupyterLab hides cells out of view, so everything must be in it.
        context = browser.new_context(viewport={"width": 1280, "height": 4000})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.goto(lab_url.format(name=name))
        page.get_by_text("| Idle").wait_for()
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.get_by_text(last_words).wait_for(timeout=PATIENCE)
        return page

    yield open_notebook
    for context in contexts:
        context.close()
