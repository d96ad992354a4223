"""Questions that arrive at about the same time, answered together by one thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from transforms.search import Hit
from transforms.serve.followed import Answer
from transforms.serve.question import Question, RefusedError

GATHERED = 0.005  # seconds that a question waits for others
MOST_TOGETHER = 64
MOST_WAITING = 512
LONGEST = 60.0  # seconds that a question may take


@dataclass(frozen=True)
class _Waiting:
    """A question, what its answer is put into, and when it came."""

    question: Question
    answer: "asyncio.Future[list[Hit]]"
    since: float


class Batches:
    """The questions that wait; `answers` gives for several of them hits or an error each, and
    raises nothing.
    """

    def __init__(
        self,
        answers: Callable[[Sequence[Question]], list[Answer]],
        told: Callable[[int], None] = lambda _: None,
    ):
        """`told` is called with the size of every batch."""
        self._answers, self._told = answers, told
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, question: Question) -> list[Hit]:
        """The hits. Raises RefusedError where too many wait already or it takes too long, else the
        error it has.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise RefusedError(503, f"{MOST_WAITING} questions wait already; ask again in a while")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(question, loop.create_future(), loop.time())
        self._waiting.append(waiting)
        self._arrived.set()
        try:
            return await asyncio.wait_for(waiting.answer, LONGEST)
        except TimeoutError:
            raise RefusedError(
                503, f"there was no answer within {LONGEST:g} seconds; ask again in a while"
            ) from None

    async def run(self) -> None:
        """Answer whatever comes, until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "search") as thread:
            while True:
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                await asyncio.sleep(self._waiting[0].since + GATHERED - loop.time())
                taken = [
                    self._waiting.popleft() for _ in range(min(MOST_TOGETHER, len(self._waiting)))
                ]
                batch = [waiting for waiting in taken if not waiting.answer.done()]
                self._told(len(batch))
                answers = await loop.run_in_executor(
                    thread, self._answers, [waiting.question for waiting in batch]
                )
                for waiting, answer in zip(batch, answers, strict=True):
                    _put(waiting.answer, answer)


def _put(future: "asyncio.Future[list[Hit]]", answer: Answer) -> None:
    """Give an answer to whoever still waits for it."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
