"""From an inventory file to hosts: every problem at once, each with its line and column.

The only room that imports yaml and pydantic, and only once an inventory is loaded.
"""

from orchestrator.inventory_file.load import (
    DEFAULT_INVENTORY,
    INVENTORY_VARIABLE,
    choose_inventory_path,
    load_inventory,
)
from orchestrator.inventory_file.select import select_hosts

__all__ = ["DEFAULT_INVENTORY", "INVENTORY_VARIABLE", "choose_inventory_path", "load_inventory", "select_hosts"]
