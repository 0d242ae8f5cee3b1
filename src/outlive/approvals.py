"""What an operation can need before it is sent, for the declaration of tools."""

from outlive.model.approval import Approval

__all__ = ["Approval"]
