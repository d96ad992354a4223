"""Questions that arrive at about the same time, answered together by one thread."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sentence_beam.transforms.search import Hit
from sentence_beam.transforms.serve.followed import Answer
from sentence_beam.transforms.serve.question import Question, RefusedError

GATHERED = 0.005  # seconds that a question waits for others
MOST_TOGETHER = 64  # questions in a batch
MOST_WAITING = 512  # questions
LONGEST = 60.0  # seconds until a question is given up


@dataclass(frozen=True)
class _Waiting:
    """A question, the future of its answer, and the time of its arrival by the loop's clock."""

    question: Question
    answer: "asyncio.Future[list[Hit]]"
    since: float


class Batches:
    """The waiting questions, answered in batches.

    `answers` returns hits or an error for each question of a batch, and raises nothing.
    """

    def __init__(
        self,
        answers: Callable[[Sequence[Question]], list[Answer]],
        count: Callable[[int], None] = lambda _: None,
    ):
        """`count` is called with the size of every batch."""
        self._answers = answers
        self._count = count
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, question: Question) -> list[Hit]:
        """Return the hits of a question, or raise the error of its search.

        Raises RefusedError if too many questions wait already, or if the answer takes too long.
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
        """Answer questions until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "search") as thread:
            while True:
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                await asyncio.sleep(self._waiting[0].since + GATHERED - loop.time())
                batch = self._take_batch()
                self._count(len(batch))
                answers = await loop.run_in_executor(
                    thread, self._answers, [waiting.question for waiting in batch]
                )
                for waiting, answer in zip(batch, answers, strict=True):
                    _put(waiting.answer, answer)

    def _take_batch(self) -> list[_Waiting]:
        """Remove the oldest questions from the queue; return those whose asker still waits."""
        size = min(MOST_TOGETHER, len(self._waiting))
        oldest = [self._waiting.popleft() for _ in range(size)]
        return [waiting for waiting in oldest if not waiting.answer.done()]


def _put(future: "asyncio.Future[list[Hit]]", answer: Answer) -> None:
    """Set the answer, unless nobody waits for it any more."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
