"""Floor 7, `python -m pgtail`: the command line without its script."""

from pgtail.entry import main

main()
