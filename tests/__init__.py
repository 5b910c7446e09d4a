"""pgtail's tests: a package, so that files of the same name may be in different folders and share tests.support.

They use real servers: the embedded one, installed ones, those that `make servers` fetched, and those in
PGTAIL_TEST_BINDIRS; and recorded captures (tests/captures/README.md). With `make azurite` they cover Azure's storage.
A test runs on one of the servers; PGTAIL_TEST_ALL=1 runs it on all, and makes long tests longer.
PGTAIL_TEST_SEED=SEED repeats a random workload.
"""
