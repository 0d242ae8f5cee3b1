"""Secrets are found by name in the environment and in files, and nowhere else."""

from pathlib import Path

import pytest

from outlive.model.errors import SecretMissing
from outlive.secret import ChainSecrets, EnvironmentSecrets, FileSecrets, Scrubber, read_secret, register_all


def test_a_name_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = EnvironmentSecrets()
    assert secrets.get("bank/token") is None
    monkeypatch.setenv("OUTLIVE_SECRET_BANK_TOKEN", "s3cret")
    assert secrets.get("bank/token") == "s3cret"
    assert EnvironmentSecrets("MY_", environ={"MY_A_B_C": "x"}).get("a-b.c") == "x"


@pytest.mark.parametrize(
    ("written", "value"), [("v", "v"), ("v\n", "v"), ("v\r\n", "v"), ("v\n\n", "v\n"), ("ü ", "ü ")]
)
def test_a_name_is_a_file(tmp_path: Path, written: str, value: str) -> None:
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "token").write_bytes(written.encode())
    assert FileSecrets(tmp_path).get("bank/token") == value


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "bank").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("none", "bank", "bank/none", "file/below"):
        assert FileSecrets(tmp_path).get(name) is None
    assert FileSecrets(tmp_path / "nowhere").get("x") is None


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/etc/passwd", "link", "", ".", "a\0b", "nested/.."])
def test_no_name_leads_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_text("not yours")
    inside = tmp_path / "secrets"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(SecretMissing):
        FileSecrets(inside).get(name)


def test_links_inside_are_followed(tmp_path: Path) -> None:
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "token").write_text("rotated")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "token").symlink_to("..data/token")
    assert FileSecrets(tmp_path).get("token") == "rotated"


def test_a_file_that_is_no_text_is_an_error_without_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"canary\xff")
    with pytest.raises(SecretMissing, match="not UTF-8") as caught:
        FileSecrets(tmp_path).get("key")
    assert caught.value.__context__ is None
    assert "canary" not in repr(caught.value)


def test_the_first_that_has_it_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("file")
    chain = ChainSecrets([EnvironmentSecrets("S_", environ={"S_B": "variable"}), FileSecrets(tmp_path)])
    assert (chain.get("a"), chain.get("b"), chain.get("c")) == ("file", "variable", None)


def test_a_missing_secret_says_where_it_was_looked_for(tmp_path: Path) -> None:
    chain = ChainSecrets([EnvironmentSecrets(environ={}), FileSecrets(tmp_path)])
    with pytest.raises(SecretMissing, match=f"OUTLIVE_SECRET_BANK_TOKEN, the file {tmp_path}/bank/token") as caught:
        read_secret(chain, "bank/token")
    assert caught.value.name == "bank/token"
    with pytest.raises(SecretMissing, match="no provider"):
        read_secret(ChainSecrets([]), "x")


def test_what_can_be_listed_is_listed(tmp_path: Path) -> None:
    environment = EnvironmentSecrets(environ={"OUTLIVE_SECRET_BANK_TOKEN": "abcd1234", "HOME": "/"})
    assert environment.names() == ["bank_token"]
    assert environment.get("bank_token") == "abcd1234"
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "token").write_text("abcd1234\n")
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "token").write_text("hidden")
    assert FileSecrets(tmp_path).names() == ["bank/token"]
    assert FileSecrets(tmp_path / "nowhere").names() == []
    assert ChainSecrets([FileSecrets(tmp_path), environment]).names() == ["bank/token", "bank_token"]


def test_a_listed_secret_that_cannot_be_scrubbed_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "short").write_text("abc")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    register_all(FileSecrets(tmp_path), Scrubber())
    assert "secret short cannot be scrubbed" in caplog.text
    assert "secret odd cannot be scrubbed" in caplog.text
