"""Part of the probe, where there are InfiniBand or RoCE devices: their ports.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import os

from orchestrator.node.parts import read_text

TYPE_CHECKING = False  # as in parts.py
if TYPE_CHECKING:
    from typing import Any, Dict, List


def rdma_ports() -> List[Dict[str, Any]]:
    """List the ports of InfiniBand and RoCE devices: NCCL prefers those that are active to any other interface."""
    top, found = "/sys/class/infiniband", []
    for device in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        for port in sorted(os.listdir("%s/%s/ports" % (top, device))):
            folder = "%s/%s/ports/%s" % (top, device, port)
            value = {name: read_text(folder + "/" + name).strip() for name in ("state", "link_layer", "rate")}
            kinds, interfaces = set(), set()
            for entry in os.listdir(folder + "/gid_attrs/types") if os.path.isdir(folder + "/gid_attrs/types") else []:
                kind = read_text("%s/gid_attrs/types/%s" % (folder, entry)).strip()  # fails for an empty slot
                gid = read_text("%s/gids/%s" % (folder, entry)).strip()
                if kind and gid.replace(":", "").strip("0"):
                    kinds.add(
                        kind + (" with an IPv4 address" if gid.startswith("0000:0000:0000:0000:0000:ffff") else "")
                    )
                    interfaces.add(read_text("%s/gid_attrs/ndevs/%s" % (folder, entry)).strip())
            found.append({
                "device": device,
                "port": port,
                "state": value["state"].partition(":")[2].strip() or value["state"],  # "4: ACTIVE"
                "link_layer": value["link_layer"],
                "rate": value["rate"],
                "vendor": read_text("%s/%s/device/vendor" % (top, device)).strip(),
                "gid_kinds": sorted(kinds),
                "interfaces": sorted(interfaces - {""}),
            })  # fmt: skip
    return found
