"""pgtail's tests: a package, so that files of the same name may be in different folders and share tests.support.

They use real servers: the embedded one, installed ones, those that `make servers` fetched, and those in
PGTAIL_TEST_BINDIRS; and recorded captures (tests/captures/README.md). With `make azurite` they cover Azure's storage.
PGTAIL_TEST_ALL=1 makes long tests longer, and runs each on all fetched servers; PGTAIL_TEST_SEED=SEED repeats a random
workload.
"""
