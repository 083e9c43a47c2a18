"""Part of the probe: interfaces, routes to the peers, and names.

Standard library only, Python 3.8 or newer, Linux.
"""

import functools
import os
import socket
import struct
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from orchestrator.node.parts import read_text, together

LOOKUP_LIMIT_S = 3.0  # a resolver that takes longer than this is as good as dead (glibc waits 10 s for it)
LOOKUPS = 3  # peers whose names are asked for: all go to one resolver, 63 questions would tell no more


def netlink(kind: int, body: bytes, *, dump: bool) -> Iterator[Tuple[bytes, Dict[int, bytes]]]:
    """Ask the kernel as the ip tool does (which may be missing); yield each answer's fixed part and attributes."""
    fixed_bytes = {18: 16, 22: 8, 26: 12}[kind]  # struct ifinfomsg, ifaddrmsg, rtmsg of <linux/rtnetlink.h>
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as ask:
        ask.settimeout(2)
        ask.send(struct.pack("=IHHII", 16 + len(body), kind, 0x301 if dump else 1, 1, 0) + body)
        while True:
            data = ask.recv(1 << 18)
            while data:
                size, answer = struct.unpack_from("=IH", data)
                if answer == 2:  # NLMSG_ERROR
                    number = -struct.unpack_from("=i", data, 16)[0]
                    raise OSError(number, os.strerror(number))
                if answer == 3:  # NLMSG_DONE
                    return
                attributes, at = {}, 16 + fixed_bytes
                while at + 4 <= size:
                    length, name = struct.unpack_from("=HH", data, at)
                    attributes[name] = data[at + 4 : at + length]
                    at += (max(length, 4) + 3) & ~3
                yield data[16 : 16 + fixed_bytes], attributes
                data = data[(size + 3) & ~3 :]
            if not dump:
                return


def address_text(data: bytes) -> str:
    """Return an address of 4 or 16 bytes as text."""
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data)


def network(peers: List[str]) -> Dict[str, Any]:
    """List the interfaces, and for each peer the one that the kernel would use."""
    interfaces: Dict[int, Dict[str, Any]] = {}
    for fixed, attributes in netlink(18, struct.pack("=BxHiII", 0, 0, 0, 0, 0), dump=True):
        index, flags = struct.unpack_from("=iI", fixed, 4)
        interfaces[index] = {
            "name": attributes[3].rstrip(b"\0").decode(errors="replace"),
            "up": bool(flags & 0x1),
            "running": bool(flags & 0x40),
            "mtu": struct.unpack("=I", attributes[4])[0],
            "addresses": [],
        }
    for fixed, attributes in netlink(22, struct.pack("=BBBBi", 0, 0, 0, 0, 0), dump=True):
        index = struct.unpack_from("=i", fixed, 4)[0]
        if index in interfaces:
            interfaces[index]["addresses"].append(address_text(attributes.get(2) or attributes[1]))
    routes, problems = together({peer: functools.partial(route_to, peer, interfaces) for peer in peers}, 5)
    routes.update({peer: {"error": "the look-up of its name: " + problem} for peer, problem in problems.items()})
    ports = read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return {"interfaces": list(interfaces.values()), "routes": routes, "ephemeral_ports": list(map(int, ports))}


def route_to(peer: str, interfaces: Dict[int, Dict[str, Any]]) -> Dict[str, Any]:
    """Say by which interface and with which own address a peer is reached."""
    try:
        family, _, _, _, where = socket.getaddrinfo(peer, None, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        return {"error": "the name %s is not known here (%s)" % (peer, error.strerror), "stage": "name"}
    data = socket.inet_pton(family, str(where[0]).partition("%")[0])
    body = struct.pack("=BBBBBBBBI", family, len(data) * 8, 0, 0, 0, 0, 0, 0, 0) + struct.pack("=HH", 4 + len(data), 1)
    try:
        for _, attributes in netlink(26, body + data, dump=False):
            index = struct.unpack("=I", attributes[4])[0] if 4 in attributes else 0
            return {
                "ip": where[0],
                "interface": interfaces.get(index, {}).get("name", ""),
                "source": address_text(attributes[7]) if 7 in attributes else "",
            }
    except OSError as error:
        return {"ip": where[0], "error": str(error.strerror), "stage": "route"}
    return {"ip": where[0], "error": "the kernel named no route", "stage": "route"}


def names(peers: List[str]) -> Dict[str, Any]:
    """Time the look-ups that gloo and torch's store make at each start."""

    def reverse(peer: str) -> float:
        start = time.monotonic()
        try:
            ip = str(socket.getaddrinfo(peer, None)[0][4][0])
            mapped = "::ffff:" + ip if "." in ip else ip  # so torch's store, listening on IPv6 for both, sees it
            socket.getnameinfo((mapped, 29500, 0, 0), socket.NI_NAMEREQD)
        except OSError:
            pass  # no name is as good an answer as a name; only the time matters
        return time.monotonic() - start

    tasks: Dict[Any, Callable[[], Any]] = {peer: functools.partial(reverse, peer) for peer in peers[:LOOKUPS]}
    tasks["own"] = functools.partial(socket.getaddrinfo, socket.gethostname(), None)
    results, problems = together(tasks, LOOKUP_LIMIT_S)
    seconds = [LOOKUP_LIMIT_S if peer in problems else results[peer] for peer in peers[:LOOKUPS]]
    return {
        "hostname_addresses": sorted({str(entry[4][0]) for entry in results.get("own", [])}),
        "name_lookup_s": round(max(seconds), 3) if seconds else None,
    }
