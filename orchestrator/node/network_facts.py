"""Part of the probe: interfaces, routes to the peers, and names.

Standard library only, Python 3.8 or newer, Linux.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import time

from orchestrator.node.parts import host_bytes, read_text, together

TYPE_CHECKING = False  # typing takes longer to import than all that is looked at
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

LOOKUP_LIMIT_S = 1.5  # slower than this is slow, however long it takes (glibc waits 10 s for a dead resolver)
SERVER_LIMIT_S = 1.2  # for a server on the way to the other side of the world
LOOKUPS = 3  # peers whose names are asked for: all go to one resolver, 63 questions would tell no more


def open_netlink() -> socket.socket:
    """Open the way to ask the kernel as the ip tool does, which may be missing."""
    ask = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    ask.settimeout(2)
    return ask


def netlink(ask: socket.socket, kind: int, body: bytes, *, dump: bool) -> Iterator[Tuple[bytes, Dict[int, bytes]]]:
    """Ask the kernel one question; yield each answer's fixed part and attributes."""
    fixed_bytes = {18: 16, 22: 8, 26: 12}[kind]  # struct ifinfomsg, ifaddrmsg, rtmsg of <linux/rtnetlink.h>
    ask.send(struct.pack("=IHHII", 16 + len(body), kind, 0x301 if dump else 1, 1, 0) + body)
    while True:
        data = ask.recv(1 << 18 if dump else 1 << 13)
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
    with open_netlink() as ask:
        for fixed, attributes in netlink(ask, 18, struct.pack("=BxHiII", 0, 0, 0, 0, 0), dump=True):
            index, flags = struct.unpack_from("=iI", fixed, 4)
            name = attributes[3].rstrip(b"\0").decode(errors="replace")
            interfaces[index] = {
                "name": name,
                "kind": "loopback" if flags & 0x8 else kind_of(name),
                "up": bool(flags & 0x1),
                "running": bool(flags & 0x40),
                "mtu": struct.unpack("=I", attributes[4])[0],
                "speed_mbit": speed_of(name),
                "networks": [],
            }
        # The order of the answers is the one in which getifaddrs() gives them to NCCL and gloo: IPv4 first, then IPv6.
        for fixed, attributes in netlink(ask, 22, struct.pack("=BBBBi", 0, 0, 0, 0, 0), dump=True):
            _, prefix, _, _, index = struct.unpack("=BBBBi", fixed)
            if index in interfaces:
                address = address_text(attributes.get(2) or attributes[1])
                interfaces[index]["networks"].append("%s/%d" % (address, prefix))
        routes = {peer: route_to(ask, peer, interfaces) for peer in peers if is_address(peer)}
    names = [peer for peer in peers if peer not in routes]  # these may take a name server's time
    found, problems = together({peer: functools.partial(route_to_name, peer, interfaces) for peer in names}, 5)
    routes.update(found)
    routes.update({peer: {"error": "the look-up of its name: " + problem} for peer, problem in problems.items()})
    ports = read_text("/proc/sys/net/ipv4/ip_local_port_range").split()
    rdma: List[Dict[str, Any]] = []
    if os.path.isdir("/sys/class/infiniband"):
        from orchestrator.node import rdma_facts

        rdma = rdma_facts.rdma_ports()
    return {
        "interfaces": list(interfaces.values()),
        "routes": routes,
        "default_routes": default_routes(),
        "ephemeral_ports": list(map(int, ports)),
        "rdma": rdma,
    }


def kind_of(name: str) -> str:
    """Say what an interface is, as sysfs tells: "wireless", "bridge", "tunnel", "physical", "virtual", ... or ""."""
    folder = "/sys/class/net/" + name
    if not os.path.isdir(folder):
        return ""  # a container without its own sysfs
    if os.path.exists(folder + "/wireless") or os.path.exists(folder + "/phy80211"):
        return "wireless"
    if os.path.exists(folder + "/tun_flags"):
        return "tunnel"
    told = dict(line.partition("=")[::2] for line in read_text(folder + "/uevent").splitlines()).get("DEVTYPE", "")
    if told:
        return {"wlan": "wireless", "wireguard": "tunnel", "ppp": "tunnel"}.get(told, told)  # bridge, bond, vlan, vxlan
    if read_text(folder + "/type").strip() == "65534":  # ARPHRD_NONE: packets without a link layer
        return "tunnel"
    return "physical" if os.path.exists(folder + "/device") else "virtual"


def speed_of(name: str) -> Optional[int]:
    """Return what the link was negotiated at (Mbit/s), or None where it does not say."""
    text = read_text("/sys/class/net/%s/speed" % name).strip()  # reading it fails while the cable is out
    return int(text) if text.isdigit() else None


def default_routes() -> List[Dict[str, Any]]:
    """List the IPv4 routes to everywhere: interface and metric."""
    rows = [line.split() for line in read_text("/proc/net/route").splitlines()[1:]]
    return [
        {"interface": row[0], "metric": int(row[6])} for row in rows if len(row) > 7 and row[1] == row[7] == "0" * 8
    ]


def is_address(text: str) -> bool:
    """Tell an address from a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return True
    return False


def route_to_name(peer: str, interfaces: Dict[int, Dict[str, Any]]) -> Dict[str, Any]:
    """The same for a name, in a thread of its own."""
    with open_netlink() as ask:
        return route_to(ask, peer, interfaces)


def route_to(ask: socket.socket, peer: str, interfaces: Dict[int, Dict[str, Any]]) -> Dict[str, Any]:
    """Say by which interface and with which own address a peer is reached."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host_bytes(peer), None, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        return {"error": "the name %s is not known here (%s)" % (peer, error.strerror), "stage": "name"}
    data = socket.inet_pton(family, str(where[0]).partition("%")[0])
    body = struct.pack("=BBBBBBBBI", family, len(data) * 8, 0, 0, 0, 0, 0, 0, 0) + struct.pack("=HH", 4 + len(data), 1)
    try:
        for _, attributes in netlink(ask, 26, body + data, dump=False):
            index = struct.unpack("=I", attributes[4])[0] if 4 in attributes else 0
            return {
                "ip": where[0],
                "interface": interfaces.get(index, {}).get("name", ""),
                "source": address_text(attributes[7]) if 7 in attributes else "",
                "gateway": address_text(attributes[5]) if 5 in attributes else "",
            }
    except OSError as error:
        return {"ip": where[0], "error": str(error.strerror), "stage": "route"}
    return {"ip": where[0], "error": "the kernel named no route", "stage": "route"}


def names(peers: List[str]) -> Dict[str, Any]:
    """Time the look-ups that gloo and torch's store make at each start."""

    def reverse(peer: str) -> float:
        start = time.monotonic()
        try:
            ip = str(socket.getaddrinfo(host_bytes(peer), None)[0][4][0])
            mapped = "::ffff:" + ip if "." in ip else ip  # so torch's store, listening on IPv6 for both, sees it
            socket.getnameinfo((mapped, 29500, 0, 0), socket.NI_NAMEREQD)
        except OSError:
            pass  # no name is as good an answer as a name; only the time matters
        return time.monotonic() - start

    tasks: Dict[Any, Callable[[], Any]] = {peer: functools.partial(reverse, peer) for peer in peers[:LOOKUPS]}
    tasks["own"] = own_addresses
    tasks["servers"] = name_servers_answer
    results, problems = together(tasks, LOOKUP_LIMIT_S)
    seconds = [LOOKUP_LIMIT_S if peer in problems else results[peer] for peer in peers[:LOOKUPS]]
    addresses = results.get("own", [])
    return {
        "hostname_addresses": [address for address, _ in addresses],
        "hostname_choice": next((address for address, usable in addresses if usable), ""),
        "name_lookup_s": round(max(seconds), 3) if seconds else None,
        "name_servers_answer": bool(results.get("servers", True)),
    }


def name_servers_answer() -> bool:
    """Tell whether any name server says anything, be it a refusal."""
    servers = [line.split()[1] for line in read_text("/etc/resolv.conf").splitlines() if line.startswith("nameserver ")]
    question = (
        struct.pack(">HHHHHH", int.from_bytes(os.urandom(2), "big"), 0x100, 1, 0, 0, 0) + b"\0\0\2\0\1"
    )  # NS of "."

    def ask(server: str) -> bool:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.settimeout(SERVER_LIMIT_S)
            try:
                way.connect((server.partition("%")[0], 53))
                way.send(question)
                return bool(way.recv(512))
            except socket.timeout:
                return False
            except OSError:
                return True  # refused, or no route: an error at once keeps nobody waiting

    asked = servers[:3] or ["127.0.0.1"]
    answers, _ = together({server: functools.partial(ask, server) for server in asked}, 2 * SERVER_LIMIT_S)
    return any(answers.values())


def own_addresses() -> List[Tuple[str, bool]]:
    """Return what this host's name resolves to, in gloo's order, and whether a process can listen there."""
    found = []
    for family, kind, protocol, _, where in socket.getaddrinfo(
        host_bytes(socket.gethostname()), None, type=socket.SOCK_STREAM
    ):
        usable = True
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(where)
        except OSError:
            usable = False
        found.append((str(where[0]), usable))
    return found
