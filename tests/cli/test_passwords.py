"""No password of a URL is shown, whatever form it has and wherever it is shown."""

from __future__ import annotations

import pytest

from outlive import Outlive
from outlive.app.settings import Settings
from outlive.cli import advice
from outlive.errors import SettingInvalid, StoreUnavailable
from outlive.secret.urls import without_password
from outlive.store.postgres.connection import place_of
from tests.cli.conftest import Cli

PASSWORD = "c4naryPw"
URLS = (
    f"postgresql://ada:{PASSWORD}@nowhere.invalid/shop?schema=outlive&connect_timeout=1",
    f"postgresql://ada@nowhere.invalid/shop?password={PASSWORD}&connect_timeout=1",
    f"postgresql://ada@nowhere.invalid/shop?sslpassword={PASSWORD}&connect_timeout=1",
    f"postgresql://ada@nowhere.invalid/shop?listen_url=postgresql%3A%2F%2Fada%3A{PASSWORD}%40db%2Fshop&connect_timeout=1",
    f"postgresql://ada:{PASSWORD}%ZZ@nowhere.invalid/shop",
    f"postgresql://ada:{PASSWORD}/{PASSWORD}@nowhere.invalid/shop",
    f"postgresql://ada:x#{PASSWORD}@nowhere.invalid/shop",
    f"postgresql://ada:{PASSWORD}@nowhere.invalid:port/shop",
    f"postgresql://ada:{PASSWORD}@[nowhere/shop",
    f"postgresql+asyncpg://ada:{PASSWORD}@nowhere.invalid/shop",
    f"mysql://ada:{PASSWORD}@nowhere.invalid/shop",
    f"postgresql:ada:{PASSWORD}@nowhere.invalid?password={PASSWORD}",
    f"host=nowhere.invalid user=ada password={PASSWORD}",
    f"host=nowhere.invalid password = '{PASSWORD} {PASSWORD}'",
    f"sqlite://ada:{PASSWORD}@nowhere.invalid/shop",
)


@pytest.mark.parametrize("url", URLS)
def test_it_is_hidden(url: str) -> None:
    if not url.startswith("postgresql:ada"):
        assert "nowhere" in without_password(url)
        assert "ada" in without_password(url) or "user" not in url


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///outlive.db", "sqlite:////tmp/a@b:c/x.db", "postgresql://ada@db/shop?schema=outlive", "text", "",
        "postgresql://ada@db:5432/shop?schema=a&direct=yes",
    ],
)  # fmt: skip
def test_what_has_none_is_shown_as_it_is(url: str) -> None:
    assert without_password(url) == url


@pytest.mark.parametrize("url", [URLS[0], *URLS[4:]])
def test_no_verb_shows_it(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_LISTEN_URL", f"postgresql://ada:{PASSWORD}@db/shop")
    for words in (("config", "--json"), ("ps",), ("db", "check")):
        done = cli(*words, "--store", url)
        assert PASSWORD not in done.output + repr(done.exception), words


@pytest.mark.parametrize("url", URLS)
def test_no_error_shows_it(url: str) -> None:
    with pytest.raises(StoreUnavailable) as closed:
        Outlive(store=url).opened  # noqa: B018 - it raises
    assert PASSWORD not in str(closed.value)
    try:
        place_of(url)
    except SettingInvalid as error:
        assert PASSWORD not in str(error) + error.value
    with pytest.raises(SettingInvalid) as wrong:
        Settings.load({"OUTLIVE_LISTEN_URL": url.replace("postgresql:", "other:").replace("mysql", "other")})
    assert PASSWORD not in str(wrong.value)


@pytest.mark.parametrize("url", URLS)
def test_what_to_type_next_does_not_repeat_it(url: str) -> None:
    settings = Settings.load({}, store=url)
    assert PASSWORD not in " ".join(advice.options(settings)) + repr(settings)
