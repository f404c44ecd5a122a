"""From a scenario to a prediction: prepare, simulate, what-ifs, bottleneck, result."""
