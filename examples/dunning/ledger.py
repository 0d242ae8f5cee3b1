"""The bank's ledger file: one JSON line per effect, on disk before anybody is told of the effect.

Lines are never changed or removed, and a second effect under one key is a line like any other: whoever counts the
lines counts what happened to the world.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypedDict


class LedgerInUse(Exception):
    """Another bank has this ledger open."""


class LedgerUnreadable(Exception):
    """A complete line of the ledger is not an effect; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Money that moved. `at` is milliseconds since the epoch; `request` numbers the request that caused it."""

    charge_id: str
    key: str
    invoice: str
    customer: str
    cents: int
    provider: str
    at: int
    request: int


class EffectCount(TypedDict):
    """`duplicates` holds the charge ids of every effect that was not the first for its key or not for its invoice."""

    by_key: dict[str, int]
    by_invoice: dict[str, int]
    duplicates: list[str]


def count(effects: Sequence[Effect]) -> EffectCount:
    by_key: Counter[str] = Counter()
    by_invoice: Counter[str] = Counter()
    duplicates: list[str] = []
    for effect in effects:
        if by_key[effect.key] or by_invoice[effect.invoice]:
            duplicates.append(effect.charge_id)
        by_key[effect.key] += 1
        by_invoice[effect.invoice] += 1
    return {"by_key": dict(by_key), "by_invoice": dict(by_invoice), "duplicates": duplicates}


class Ledger:
    """Append-only file of effects with one writer. Not thread-safe: the bank calls it under its own lock."""

    def __init__(self, path: Path) -> None:
        """Open or create; raises LedgerInUse, LedgerUnreadable or OSError.

        A last line without its newline is cut off: it was being written when a bank died, so nobody was told of it.
        """
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = path.read_bytes()
            self._size = data.rfind(b"\n") + 1
            self.effects = [_decode(path, n, line) for n, line in enumerate(data[: self._size].splitlines(), 1)]
            if len(data) > self._size:
                os.ftruncate(self._file, self._size)
            _sync_directory(path)
        except BlockingIOError as error:
            self.close()
            raise LedgerInUse(f"{path} is open in another bank") from error
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._file)

    def append(self, effect: Effect) -> None:
        """Return once the line is on disk. On OSError (a full disk) nothing was recorded, so nothing happened."""
        line = json.dumps(asdict(effect), ensure_ascii=False).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(f"{self.path}: {written} of {len(line)} bytes written")
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)
        self.effects.append(effect)


def _decode(path: Path, number: int, line: bytes) -> Effect:
    try:
        raw = json.loads(line)
        return Effect(**{field.name: raw[field.name] for field in fields(Effect)})
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerUnreadable(f"{path}, line {number} is not an effect: {error!r}") from error


def _sync_directory(path: Path) -> None:
    directory = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
