"""How far to trust a prediction: numbers, misfit, model and simulation, each by itself.

log y = log model(x, numbers) + misfit of the profile (x) + error of the model (class of x)
+ simulation. Source of the split: Kennedy and O'Hagan, "Bayesian calibration of computer models",
J. R. Statist. Soc. B 63(3), 2001.
"""
