"""Why a target is missed, by line and store: one sentence for the table, written by hand when it is understood.

A miss without a reason makes `make bench` fail; a reason whose target is met again is left out of the page.
"""

REASONS: dict[tuple[str, str], str] = {}
