"""The words of reports: one list, for the page itself and the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GLOSSARY: Final[Mapping[str, str]] = {
    "die": "the part of a drive that holds data and does one thing at a time; a drive has "
    "dozens, each with a queue",
    "channel": "the bus inside a drive that several dies share to send data",
    "station": "anything that requests wait for: a die, a link, a CPU, a lock",
    "gate": "a number of slots, such as a write buffer's; a request that finds none free waits",
    "section": "a part of the run that the statistics look at by itself, to know how much "
    "chance there is",
    "interval": "where the true value lies with 95 % probability, as far as the model knows",
    "outstanding": "requests that were sent and are not answered yet: fio's iodepth times jobs",
    "closed loop": "threads that send the next request when one is answered",
    "open loop": "requests that arrive by the clock, whether or not earlier ones are answered",
    "relief": "a change that was simulated to see what it brings",
    "bound": "the throughput if the busiest station never waits for work: no load can exceed it",
}
