"""pgtail's tests: a package, so that files of the same name may be in different folders and share tests.support.

They use real servers: the embedded one, installed ones, those that `make servers` fetched, and those in
PGTAIL_TEST_BINDIRS; and recorded captures (tests/captures/README.md). With `make azurite` they cover Azure's storage.
A run of the whole suite is a sample: a test runs on one of the servers, with a sixth of the captures, and if it is
marked in_one_run_of(6) in one of the runs that PGTAIL_TEST_PART=0 to 5 are. Tests that are named, as in
`pytest tests/spark`, run in any case. PGTAIL_TEST_ALL=1 runs everything, on all servers, at full length.
On a server of your own, and no other: PGTAIL_TEST_BINDIRS=/usr/local/pgsql/bin PGTAIL_TEST_SERVERS=19.
PGTAIL_TEST_SEED=SEED repeats random inputs.
"""
