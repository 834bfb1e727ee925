"""Judge calls a second through the pool, against the most that a server answering after 250 ms allows with 64 at once.

The server is another process that does nothing but wait; calls are those of a detection judge (a prompt of 1.5 kB, 20
log-probabilities), each reply kept on disk as always. Beside it the share at 50 ms, with what limits it: the processor
time of this process per call. With QUICK=1 fewer calls.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
from latentry.clients.openai_compatible import Config  # noqa: E402 (the path is set above)
from latentry.clients.pool import ClientPool  # noqa: E402
from latentry.clients.reply_store import ReplyStore  # noqa: E402
from latentry.records import Message, Request  # noqa: E402
from latentry.scorers.asking import NO, YES  # noqa: E402
from loopback import Run  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
AT_ONCE = 64
RUNS = 3
SERVER = """
import asyncio, json, sys

top = [{"token": f"t{i}", "logprob": -float(i), "bytes": None} for i in range(20)]
choice = {"index": 0, "message": {"role": "assistant", "content": "Yes"}, "finish_reason": "length",
          "logprobs": {"content": [{**top[0], "top_logprobs": top}]}}
body = json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice],
                   "usage": {"prompt_tokens": 400, "completion_tokens": 1}}).encode()
answer = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body) + body

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = next(line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            await asyncio.sleep(float(sys.argv[1]))
            writer.write(answer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def requests(n: int, run: int) -> list[Request]:
    """Distinct questions, as long as detection's."""
    shots = [Message(role=role, content="a window of the text " * 8) for role in ("system", *("user", "assistant") * 4)]
    return [
        Request(messages=(*shots, Message(role="user", content=f"window {run} {i} of the text")), max_tokens=1, alternatives=YES + NO)
        for i in range(n)
    ]


def measured(delay_s: float, n: int) -> tuple[float, float, float]:
    """Share of the possible rate, calls a second, and processor milliseconds per call: medians over runs."""
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(delay_s)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
    walls, processor = [], []
    try:
        for run in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                store = ReplyStore(Path(folder))
                configs = {"judge": Config(kind="openai_compatible", model="m")}
                pool = ClientPool(configs, {"judge": Run(base_url=url, concurrency=AT_ONCE)}, models=Path(folder), store=store)
                asked, began, cpu = requests(n, run), time.perf_counter(), time.process_time()
                pool.asker("judge", "bench")(asked)
                walls.append(time.perf_counter() - began)
                processor.append(time.process_time() - cpu)
                store.close()
    finally:
        server.kill()
    wall = statistics.median(walls)
    return n * delay_s / AT_ONCE / wall, n / wall, 1000 * statistics.median(processor) / n


def main() -> None:
    """Measure at both delays."""
    n = 1920 if QUICK else 5120
    share, rate, _ = measured(0.25, n)
    share_50, rate_50, cpu_50 = measured(0.05, n)
    limit = 1000 / cpu_50
    print(  # noqa: T201
        f"pool n={n} at_once={AT_ONCE} share={share:.3f} rate={rate:.0f} possible={AT_ONCE / 0.25:.0f}"
        f" share_50ms={share_50:.3f} rate_50ms={rate_50:.0f} possible_50ms={AT_ONCE / 0.05:.0f} cpu_ms_per_call={cpu_50:.2f}"
        f" one_core_limit={limit:.0f} runs={RUNS}"
    )


if __name__ == "__main__":
    main()
