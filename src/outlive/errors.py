"""The errors that agent code and callers may catch. The whole tree is drawn in `outlive.model.errors`."""

from outlive.model.errors import *  # noqa: F403 - this module is the public name of that one
