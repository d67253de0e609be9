"""`python -m pinlater`: the command, where its folder is not on the PATH."""

from pinlater.cli import main

main(prog_name="pinlater")
