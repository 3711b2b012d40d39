"""A job without a model, which worker processes can import: each part is a file; some die, or fail, when told to."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichtoken.errors import BadInput
from whichtoken.jobs.work import DoPart, Range, Receipt


@dataclass(frozen=True)
class SmallWork:
    """Writes the rows of each part. `deaths`: how often a worker dies before it does the part `deadly`."""

    folder: str
    deadly: int = -1
    deaths: int = 0
    wrong: int = -1  # a part that fails with an error of ours
    odd: int = -1  # a part that fails with another error

    def read(self, first: int, last: int) -> Any:
        import pyarrow as pa

        return pa.table({"row": list(range(first, last + 1))})

    def open(self) -> DoPart:
        return self.do

    def do(self, table: Any, part: Range) -> Receipt:
        first, last = part
        if first == self.wrong:
            raise BadInput("has no words", index=first)
        if first == self.odd:
            raise ZeroDivisionError("nothing to divide")
        if first == self.deadly:
            for number in range(self.deaths):
                marker = Path(self.folder, f"death-{number}")
                if not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        with Path(self.folder, f"{first}-{last}").open("a") as file:
            file.write(" ".join(map(str, table.column("row").to_pylist())) + "\n")
        return Receipt(first, last, last - first + 1)
