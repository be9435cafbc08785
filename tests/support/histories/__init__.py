"""Generated notebook histories: what cells people run, made from a seed, and how they are run, exported and compared."""
