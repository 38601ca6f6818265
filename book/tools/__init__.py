"""Tools that install, build, normalise and check the book."""
