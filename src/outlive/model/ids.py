"""Identifiers as types of their own, so that one cannot be passed for another; and what may be one."""

from __future__ import annotations

from typing import NewType

Tenant = NewType("Tenant", str)
RunId = NewType("RunId", str)
OperationId = NewType("OperationId", str)
ApprovalId = NewType("ApprovalId", str)
Owner = NewType("Owner", str)

DEFAULT_TENANT = Tenant("default")

LONGEST_NAME = 200
# A reason, a purpose: for people, who read it in a list.
LONGEST_WORDS = 2000


def unnamed(what: str, name: object) -> str:
    """Why people could not read and say this as the name of something, or nothing."""
    if isinstance(name, str) and name.strip() and len(name) <= LONGEST_NAME and name.isprintable():
        return ""
    return f"{what} is not a printable text of 1 to {LONGEST_NAME} characters"
