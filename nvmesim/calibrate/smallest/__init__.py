"""The smallest drive that meets rows: a latency, a bandwidth, a cap; tried beside a bank of dies."""
