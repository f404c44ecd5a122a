"""Choosing what to buy: the least price, power or number of drives that meets a goal."""

from nvmesim.study.choose.goal import Goal, goal_from_dict, load_goal
from nvmesim.study.choose.search import Choice, choose

__all__ = ["Choice", "Goal", "choose", "goal_from_dict", "load_goal"]
