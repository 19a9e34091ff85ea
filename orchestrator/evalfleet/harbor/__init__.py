"""Task folders in Harbor's format as Evals: their settings, their body, and how their tests' reward is read."""
