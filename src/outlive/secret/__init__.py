"""Secret values: where they are read from, and the scrubber that keeps them out of all that is written.

A value that a provider gave is registered with the scrubber before anyone else sees it.
"""

from outlive.secret.environment import EnvironmentSecrets
from outlive.secret.files import FileSecrets
from outlive.secret.port import ChainSecrets, Secrets, read_secret, register_all
from outlive.secret.scrubber import Scrubber, ScrubbingFilter

__all__ = [
    "ChainSecrets",
    "EnvironmentSecrets",
    "FileSecrets",
    "Scrubber",
    "ScrubbingFilter",
    "Secrets",
    "read_secret",
    "register_all",
]
