"""pgtail's tests; a package, so that files of the same name may stand in different folders and share tests.servers."""
