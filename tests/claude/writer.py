"""`python -m tests.claude.writer URL`: appends to a transcript until it is killed, and says what is stored."""

import asyncio
import itertools
import sys

from outlive.claude import OutliveSessionStore
from tests.claude.lines import KEY, said


async def main(url: str) -> None:
    async with OutliveSessionStore(url) as store:
        for number in itertools.count():
            await store.append(KEY, [said(number, at, title=f"{number}-{at}") for at in range(3)])
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
