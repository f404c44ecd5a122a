"""The smallest drive that meets rows: a latency, a bandwidth, a cap; beside a bank of dies."""
