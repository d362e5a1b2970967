"""The TCP ports that processes listen on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path


def listening(processes: Iterable[int]) -> set[tuple[IPv4Address | IPv6Address, int]]:
    """Return the addresses and ports on which processes, named by their ids, listen."""
    sockets = {link for pid in processes for link in _open_files(pid) if link.startswith("socket:")}
    return {
        (_address(address), int(port, 16))
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets
        for address, port in [fields[1].split(":")]
    }


def _open_files(pid: int) -> list[str]:
    """Return what the files that a process has open link to, without those that are closed meanwhile."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                names.append(os.readlink(link))
    return names


def _address(digits: str) -> IPv4Address | IPv6Address:
    """Return the address of a line of /proc/net/tcp or tcp6: words of 32 bits, each with its lowest byte first.

    A JVM listens on 127.0.0.1 by its form in IPv6, ::ffff:127.0.0.1.
    """
    words = [bytes.fromhex(digits[start : start + 8])[::-1] for start in range(0, len(digits), 8)]
    address = ip_address(b"".join(words))
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
