"""From recorded assertions to a verdict and a score."""
