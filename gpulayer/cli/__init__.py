"""The command `gpulayer`: thin commands that call the client. One file for each group; main.py puts them together."""
