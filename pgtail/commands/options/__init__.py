"""The options of the commands, declared as fields of records."""
