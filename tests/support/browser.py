"""Pages of tests in a real browser: Chromium, headless, without network, through its WebDriver.

The window is that of a desk unless `phone` is called; what a page asked of the network is in `requests`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

PROGRAMS = ("chromium", "chromedriver")
PHONE = (390, 844)
_DESK = (1280, 900)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
_SECONDS = 60


@dataclass(slots=True)
class Browser:
    """One window. `errors` are what the page wrote to its console, refusals of its policy among them."""

    driver: WebDriver
    errors: list[str] = field(default_factory=list)
    _asked: list[str] = field(default_factory=list)

    def open(self, page: Path) -> None:
        """Load a file, with an empty list of requests and errors."""
        self.driver.get("about:blank")
        self._read_log()
        self._asked.clear()
        self.errors.clear()
        self.driver.get(page.resolve().as_uri())

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened, besides the page and data in it."""
        self._read_log()
        page = self.driver.current_url.partition("#")[0]
        return [one for one in self._asked if one.partition("#")[0] != page and not one.startswith("data:")]

    def problems(self) -> list[str]:
        """What the page complained of since it was opened: exceptions, and what its policy refused."""
        self._read_log()
        return list(self.errors)

    def phone(self) -> None:
        """Show the page as on a phone, in portrait."""
        self._size(*PHONE, mobile=True)

    def desk(self) -> None:
        """Show the page as on a desk."""
        self._size(*_DESK, mobile=False)

    def colours(self, scheme: Literal["light", "dark"]) -> None:
        """Let the system prefer light or dark pages."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", features=features)

    def find(self, selector: str) -> WebElement:
        """The first element of a CSS selector; fails where there is none."""
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements of a CSS selector."""
        return self.driver.find_elements("css selector", selector)

    def run(self, script: str, *arguments: object) -> Any:
        """The value that JavaScript `return`s."""
        return self.driver.execute_script(script, *arguments)

    def scrolls_sideways(self) -> bool:
        """Whether the page itself, not something in it, is wider than the window."""
        return bool(self.run("const d = document.documentElement; return d.scrollWidth > d.clientWidth"))

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        """What is seen, or the whole page, as PNG."""
        import base64

        shot = self._command("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self._command("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _size(self, width: int, height: int, *, mobile: bool) -> None:
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def _command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def _read_log(self) -> None:
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._asked.append(message["params"]["request"]["url"])
        self.errors += [one["message"] for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def browser_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that stays open; skips where there is none."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (apt-get install chromium chromium-driver)")
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = selenium.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.binary_location = shutil.which(PROGRAMS[0])
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = selenium.ChromeService(executable_path=shutil.which(PROGRAMS[1]))
    driver = selenium.Chrome(options=options, service=service)
    driver.set_page_load_timeout(_SECONDS)
    driver.execute_cdp_cmd("Network.enable", {})
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(browser_program: Browser) -> Browser:
    """The browser as on a desk with light pages."""
    browser_program.desk()
    browser_program.colours("light")
    return browser_program
