"""Identifiers as types of their own, so that one cannot be passed for another."""

from __future__ import annotations

from typing import NewType

Tenant = NewType("Tenant", str)
RunId = NewType("RunId", str)
OperationId = NewType("OperationId", str)
ApprovalId = NewType("ApprovalId", str)
Owner = NewType("Owner", str)

DEFAULT_TENANT = Tenant("default")
