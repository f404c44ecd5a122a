"""Parts with sourced numbers: drives, CPUs, stacks, RAID engines, platforms."""
