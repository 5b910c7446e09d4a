"""`async with pgtail.follow()`: the same transactions, while other tasks run; a cancelled task ends its session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from pgtail import InputError, ServerError, follow, read
from pgtail.api.follow import _take_some
from tests.support.encode import begin, commit, lengths, relation
from tests.support.encode import insert as insert_row
from tests.support.servers import Database
from tests.support.tail import terminate, wait_for_free_slots

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def shop(newest_database: Database) -> Database:
    """A database with a table, a publication, and the slot s."""
    newest_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t")
    newest_database.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    return newest_database


@pytest.fixture(params=["asyncio", "anyio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine in a loop that reports what it waits for too long."""
    if request.param == "asyncio":
        return lambda main: asyncio.run(main())
    return lambda main: anyio.run(main, backend="asyncio")


def insert(database: Database, *ids: int) -> Any:
    return asyncio.to_thread(database.execute, *[f"INSERT INTO t VALUES ({id_})" for id_ in ids])


def test_async_for_gives_the_transactions_while_other_tasks_run(shop: Database, run: Run) -> None:
    async def main() -> None:
        found = []
        async with follow(shop.conninfo(), slot="s") as stream:
            inserting = asyncio.create_task(insert(shop, 1, 2, 3))
            async for transaction in stream:
                found += [change.key["id"] for change in transaction]
                stream.acknowledge(transaction)
                if len(found) == 3:
                    break
            await inserting
        assert found == [1, 2, 3]

    run(main)
    with follow(shop.conninfo(), slot="s", until="now") as stream:
        assert not list(stream)


def test_a_transaction_that_came_after_a_time_limit_is_not_lost(shop: Database, run: Run) -> None:
    async def main() -> None:
        async with follow(shop.conninfo()) as stream:
            for id_ in (1, 2):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await anext(stream)
                await insert(shop, id_)
                await asyncio.sleep(0.2)
                assert [change.key["id"] for change in await anext(stream)] == [id_]

    run(main)


def test_the_changes_of_a_transaction_come_while_other_tasks_run(shop: Database, run: Run) -> None:
    async def main() -> None:
        async with follow(shop.conninfo(), slot="s", limit=3) as stream:
            for first in (1, 2001, 4001):
                statement = f"INSERT INTO t SELECT generate_series({first}, {first + 1999})"
                await asyncio.to_thread(shop.execute, statement)
            transaction = await anext(stream)
            assert [change.key["id"] async for change in transaction] == [*range(1, 2001)]
            assert transaction.end_lsn is not None
            with pytest.raises(RuntimeError, match="has no changes left: it was iterated over before"):
                await anext(aiter(transaction))
            transaction = await anext(stream)
            async for change in transaction:
                if change.key["id"] == 2500:
                    break  # the rest is skipped
            transaction = await anext(stream)
            stream.acknowledge(transaction)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        with follow(shop.conninfo(), slot="s", until="now") as again:
            assert not list(again)

    run(main)


def test_an_error_within_a_transaction_comes_after_its_changes() -> None:
    stream = read(lengths(relation(), begin(), insert_row("1", "a"), insert_row("2", "b")))
    changes, error = _take_some(iter(next(stream)))
    assert ([change.key["id"] for change in changes], type(error)) == ([1, 2], InputError)


def test_without_async_with_there_is_no_async_for(shop: Database, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"only pgtail.follow\(\) has async for"):
            aiter(next(read(lengths(relation(), begin(), insert_row("1", "a"), commit()))))
        needs = pytest.raises(RuntimeError, match="needs a stream that was entered with async with")
        with follow(shop.conninfo()) as stream, needs:
            await anext(stream)

    run(main)


def test_it_ends_where_the_stream_ends(shop: Database, run: Run) -> None:
    async def main() -> None:
        await insert(shop, 1, 2)
        async with follow(shop.conninfo(), slot="s", until="now") as stream:
            assert [[change.key["id"] for change in one] async for one in stream] == [[1], [2]]

    run(main)


def test_a_cancelled_task_ends_its_session_soon(shop: Database, run: Run) -> None:
    async def read(ready: asyncio.Event) -> None:
        async with follow(shop.conninfo(), slot="s") as stream:
            ready.set()
            async for _ in stream:
                pass

    async def main() -> None:
        ready = asyncio.Event()
        task = asyncio.create_task(read(ready))
        await ready.wait()
        await asyncio.sleep(0.1)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begun < 10

    run(main)
    wait_for_free_slots(shop)


def test_errors_are_raised_in_the_task(shop: Database, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ServerError):
            async with follow(shop.conninfo(), slot="missing"):
                pass
        async with follow(shop.conninfo()) as stream:
            await asyncio.to_thread(terminate, shop)
            with pytest.raises(ServerError, match="temporary slot"):
                await anext(stream)

    run(main)


def test_several_streams_in_one_loop(shop: Database, run: Run) -> None:
    async def read(ready: asyncio.Barrier) -> list[int]:
        async with follow(shop.conninfo(), limit=3) as stream:
            await ready.wait()
            return [change.key["id"] async for transaction in stream for change in transaction]

    async def main() -> None:
        ready = asyncio.Barrier(5)
        tasks = [asyncio.create_task(read(ready)) for _ in range(4)]
        await ready.wait()
        await insert(shop, 1, 2, 3)
        assert await asyncio.gather(*tasks) == [[1, 2, 3]] * 4

    run(main)
