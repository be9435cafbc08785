"""Decisions only: which job goes to which workers. Pure functions over plain values; committing is the caller's part."""
