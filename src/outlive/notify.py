"""Where notifications go: `Outlive(notify=[Route("ops", url="https://…", secret="notify/ops")])`."""

from outlive.duty.route import Route

__all__ = ["Route"]
