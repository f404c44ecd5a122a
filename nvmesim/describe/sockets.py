"""How many sockets the dumps show, and which NUMA node is on which."""

from __future__ import annotations

from nvmesim.describe.facts import Facts, Slot, Uplink
from nvmesim.errors import InputError


class Sockets:
    """How many sockets there are, and which node belongs to which."""

    def __init__(self, facts: Facts, assumed: list[str]) -> None:
        self._nodes = sorted(facts.nodes.memory) if facts.nodes else []
        self._known = dict(facts.nodes.socket_of) if facts.nodes else {}
        self._facts, self._assumed = facts, assumed
        self.count = self._count()

    def _count(self) -> int:
        if self._facts.cpu:
            return self._facts.cpu.sockets
        named = [socket for socket in self._known.values() if socket is not None]
        if named:
            return max(named) + 1
        seen = [slot.node for slot in self._facts.slots if slot.node is not None]
        count = len(self._nodes) or max(seen, default=0) + 1
        known = bool(self._nodes or seen)
        what = f"{count}, one for each NUMA node seen" if known else "one"
        self._assumed.append(f"sockets: {what}; lscpu counts them")
        return count

    def of_node(self, node: int, what: str) -> int:
        """Return the socket of *node*, on which *what* is."""
        socket = self._known.get(node)
        if socket is not None:
            return socket
        nodes = self._nodes or list(range(self.count))
        if node not in nodes:
            listed = ", ".join(str(known) for known in nodes)
            raise InputError(
                f"{what} is on NUMA node {node}; the server has {listed}: "
                "are these dumps of one server?"
            )
        if self.count > 1:
            self.assume("NUMA nodes are taken to be numbered socket by socket")
        return nodes.index(node) * self.count // max(len(nodes), self.count)

    def of(self, place: Slot | Uplink, what: str) -> int:
        """Return the socket of a slot or an uplink; 0 if nothing says it."""
        if place.socket is not None:
            return place.socket
        if place.node is not None:
            return self.of_node(place.node, what)
        if self.count > 1:
            self.assume(f"where {what} is attached is not in the dumps: socket 0")
        return 0

    def memory(self) -> list[bool]:
        """True if each socket has memory; all have where nothing is said."""
        sizes = dict(self._facts.nodes.memory) if self._facts.nodes else {}
        has: dict[int, bool] = {}
        for node, size in sizes.items():
            socket = self.of_node(node, "memory")
            has[socket] = has.get(socket, False) or size is None or size > 0
        return [has.get(socket, True) for socket in range(self.count)]

    def assume(self, text: str) -> None:
        """Note *text* once."""
        if text not in self._assumed:
            self._assumed.append(text)
