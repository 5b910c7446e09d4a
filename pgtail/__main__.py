"""Floor 7, `python -m pgtail`: the command line without its script."""

from pgtail.cli import main

main(prog_name="pgtail")
