"""The planner: from one request on a volume to the commands on its members, as Linux md does."""
