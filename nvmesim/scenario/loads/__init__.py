"""Load descriptions of other tools: fio job files and DiskSpd command lines."""
