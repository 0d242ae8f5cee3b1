"""A small bookshop: agents as their authors would write them, checked by mypy and pyright at their strictest."""
