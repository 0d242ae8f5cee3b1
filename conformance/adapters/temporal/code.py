"""The plan, read once outside of the workflow sandbox."""

from conformance.adapters import common

PLAN = common.plan()
