"""RAID: levels, geometry, address maps, and the planner of member commands."""
