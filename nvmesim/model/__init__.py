"""From a resolved scenario to a network: drives, host, paths and volumes as stations."""
