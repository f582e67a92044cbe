"""Records of runs, as results store them."""
