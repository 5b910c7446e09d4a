"""Files to the pipeline: one stream through one output, for commands and the library; nothing of the console."""
