"""`outlive config`: each setting, its value, and where that comes from."""

from __future__ import annotations

from outlive.cli import options
from outlive.cli.screen import plain, put_json, put_table

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

    The source is an option, a variable OUTLIVE_…, or the default. With --app the application is loaded: a store that it
    names itself is in force then, unless --store names another.
    """
    from rich.text import Text

    from outlive.app import operate

    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    settings = operate.settings_of(None, **given) if app is None else operate.application(app, **given)[1]
    names = ("name", "value", "source", "help")
    if json:
        put_json([dict(zip(names, row, strict=True)) for row in settings.rows()], indent=2)
        return
    put_table(
        ("setting", "value", "source", "meaning"), [[Text(plain(cell)) for cell in row] for row in settings.rows()]
    )
