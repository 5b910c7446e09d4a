"""Floor 4, what `pgtail stats` counts: events in, numbers in bounded memory; knows no output and no file."""
