"""`outlive config`: each setting, its value, and where that comes from."""

from __future__ import annotations

from outlive.cli import options
from outlive.cli.screen import console, plain, put_json, table

EXAMPLES = ("outlive config", "OUTLIVE_LEASE=10s outlive config --json")


def config(
    *,
    json: options.Json = False,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Show each setting and its source.

    The source is an option, a variable OUTLIVE_…, or the default.
    """
    from rich.text import Text

    from outlive.app.settings import Settings

    settings = Settings.load(None, app=app, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    names = ("name", "value", "source", "help")
    if json:
        put_json([dict(zip(names, row, strict=True)) for row in settings.rows()], indent=2)
        return
    shown = table("setting", "value", "source", "meaning")
    for name, value, source, meaning in settings.rows():
        shown.add_row(name, Text(plain(value)), source, meaning)
    console().print(shown)
