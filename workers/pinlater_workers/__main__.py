"""`python -m pinlater_workers`: the command `pinlater-worker`, where its folder is not on the PATH."""

from pinlater_workers.cli import main

main(prog_name="pinlater-worker")
