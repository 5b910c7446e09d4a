"""pgtail's tests: a package, so that files of the same name may be in different folders and share tests.support.

They use real servers: the embedded one, installed ones, those that `make servers` fetched, and those in
PGTAIL_TEST_BINDIRS; and recorded captures (tests/captures/README.md). With `make azurite` they cover Azure's storage.
A test that takes `server` or `database` runs on an old, a middle and the newest version, or on those that its mark
names; others run on the newest. What takes hours is in tests/torture.
On a server of your own, and no other: PGTAIL_TEST_BINDIRS=/usr/local/pgsql/bin PGTAIL_TEST_SERVERS=19.
The random inputs of tests are the same in every run. PGTAIL_TEST_SEED=random makes others, and PGTAIL_TEST_SEED=SEED
repeats those of a failed test.
"""
