"""pgtail's tests: a package, so that files of the same name may be in different folders and share tests.support."""
