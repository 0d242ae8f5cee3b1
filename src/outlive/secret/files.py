"""Secrets from a directory with one file per name, as Docker and Kubernetes mount them.

No name leads outside the directory. A link may lead to another place inside it: Kubernetes swaps secrets by links.
"""

from __future__ import annotations

from pathlib import Path

from outlive.model.errors import SecretMissing


class FileSecrets:
    """Reads `directory/name`, as UTF-8, at each call; one newline at the end is not part of the value."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def get(self, name: str) -> str | None:
        path = self._path(name)
        try:
            return path.read_bytes().decode().removesuffix("\n").removesuffix("\r")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except UnicodeDecodeError:
            # The exception carries the bytes of the file: they must not travel with the error.
            why = "which is not UTF-8 text"
        except OSError as error:
            why = f"which cannot be read: {error.strerror}"
        raise SecretMissing(name=name, tried=f"{self.describe(name)}, {why}")

    def names(self) -> list[str]:
        """The files below the directory, but for hidden ones (Kubernetes keeps its links there)."""
        found = sorted(path.relative_to(self._directory) for path in self._directory.rglob("*") if path.is_file())
        return [str(path) for path in found if not any(part.startswith(".") for part in path.parts)]

    def describe(self, name: str) -> str:
        return f"the file {self._directory / name}"

    def _path(self, name: str) -> Path:
        """The file of a name. It is resolved first, so that neither `..` nor a link leads outside."""
        root = self._directory.resolve()
        path = (root / name).resolve() if "\0" not in name else root
        if path == root or not path.is_relative_to(root):
            raise SecretMissing(name=name, tried=f"{self._directory}, which that name does not lead into")
        return path
