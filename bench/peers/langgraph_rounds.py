"""W1 and W2 with LangGraph and its savers for SQLite and PostgreSQL: one repetition, as JSON lines.

  langgraph_rounds.py W1|W2 FOLDER --seconds S --lanes N --durability sync|async --synchronous full|normal
  langgraph_rounds.py W1|W2 FOLDER --seconds S --lanes N --durability sync|async --postgres ADDRESS

A model that is fake, instantaneous and in the process; texts of 64 bytes, like those of the others.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import uuid
from importlib.metadata import version

import aiosqlite
import psycopg
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

USER = "please do the thing " + "u" * 44
FINAL = "done " + "f" * 59
ECHOED = "x" * 64
WARM_UP_COUNT = 4
APPROVED = {"type": "approve"}


class AskOnce(BaseChatModel):
    """Asks for its calls once, and then says that it is done."""

    names: list[str]

    @property
    def _llm_type(self):
        return "fake"

    def bind_tools(self, tools, **_):
        return self

    def _answer(self, messages):
        if messages[-1].type != "human":
            return AIMessage(FINAL)
        calls = [
            {"name": name, "args": {"text": ECHOED}, "id": f"call_{number}"}
            for number, name in enumerate(self.names)
        ]
        return AIMessage("", tool_calls=calls)

    def _generate(self, messages, stop=None, run_manager=None, **_):
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **_):
        return self._generate(messages)


def echo(name, entered):
    async def body(text: str) -> str:
        entered[name] = time.perf_counter()
        return text

    return StructuredTool.from_function(coroutine=body, name=name, description="Says it again")


def fresh(recursion_limit=100):
    return {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": recursion_limit}


def message():
    return {"messages": [{"role": "user", "content": USER}]}


def tool_round(saver, durability):
    agent = create_agent(AskOnce(names=["echo", "echo"]), [echo("echo", {})], checkpointer=saver)

    async def one():
        begin = time.perf_counter()
        result = await agent.ainvoke(message(), fresh(), durability=durability)
        assert len(result["messages"]) == 5 and result["messages"][-1].content == FINAL
        return {"run": time.perf_counter() - begin}

    return one


def approval(saver, durability):
    """A and B are held one by one, which is the mode that lets A start before B is decided."""
    entered = {}
    tools = [echo(name, entered) for name in "abc"]
    asking = HumanInTheLoopMiddleware(interrupt_on={"a": True, "b": True}, interrupt_mode="per_call")
    agent = create_agent(AskOnce(names=list("abc")), tools, middleware=[asking], checkpointer=saver)

    async def go_on(said, thread):
        return await agent.ainvoke(said, thread, durability=durability, version="v2")

    async def one():
        thread, begin = fresh(), time.perf_counter()
        held = await go_on(message(), thread)
        times = {"start_to_held": time.perf_counter() - begin}
        ids = {pause.value["name"]: pause.id for pause in held.interrupts}
        assert set(ids) == {"a", "b"}
        for call in "ab":
            asked = time.perf_counter()
            answer = await go_on(Command(resume={ids[call]: APPROVED}), thread)
            times[f"decision_{call}_to_tool_start"] = entered[call] - asked
        times["decision_b_to_end"] = time.perf_counter() - asked
        assert answer.value["messages"][-1].content == FINAL
        times["run"] = time.perf_counter() - begin
        return times

    return one


async def lanes(ones, lane_count, seconds):
    runs, begin = [], time.perf_counter()

    async def lane(one):
        while time.perf_counter() - begin < seconds:
            runs.append(await one())

    await asyncio.gather(*[lane(ones[number % len(ones)]) for number in range(lane_count)])
    return runs, time.perf_counter() - begin


def percentile(samples, percent):
    ordered = sorted(samples)
    return ordered[max(1, -(-len(ordered) * percent // 100)) - 1]


def bytes_written():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


@contextlib.asynccontextmanager
async def in_sqlite(asked, folder):
    """One saver, how durable it is, and only its own processor time."""
    connection = await aiosqlite.connect(os.path.join(folder, "checkpoints.db"))
    if asked.synchronous == "normal":
        await connection.execute("PRAGMA synchronous=NORMAL")
    saver = AsyncSqliteSaver(connection)
    await saver.setup()
    pragmas = {}
    for name in ("journal_mode", "synchronous"):
        async with connection.execute(f"PRAGMA {name}") as rows:
            pragmas[name] = (await rows.fetchone())[0]
    try:
        yield [saver], f"{pragmas['journal_mode']}, synchronous={pragmas['synchronous']}", None
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def in_postgres(asked, _):
    """In a database of its own on that server, with as many connections as the store of ours has."""
    name = f"langgraph_{os.getpid()}"
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with await psycopg.AsyncConnection.connect(asked.postgres, **settings) as outside:
        await outside.execute(f"CREATE DATABASE {name}")
        address = psycopg.conninfo.make_conninfo(asked.postgres, dbname=name)
        pool = AsyncConnectionPool(address, min_size=16, max_size=16, kwargs=settings, open=False)
        async with pool:
            savers = [AsyncPostgresSaver(pool) for _ in range(asked.savers)]
            await savers[0].setup()
            shown = await (await outside.execute("SHOW synchronous_commit")).fetchone()
            backend = outside.info.backend_pid
            yield savers, f"synchronous_commit={shown['synchronous_commit']}", lambda: server_time(backend)
        await outside.execute(f"DROP DATABASE {name} WITH (FORCE)")


def times_of(process):
    """Who started it, and the seconds that it and those of its children that have ended have used."""
    with open(f"/proc/{process}/stat") as text:
        fields = text.read().rsplit(")", 1)[1].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def server_time(backend):
    """Seconds of the processor that all processes of this one's server have used."""
    server, _ = times_of(backend)
    total = times_of(server)[1]
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parent, seconds = times_of(process)
            total += seconds if parent == server else 0
    return total


async def measure(asked, folder):
    async with (in_postgres if asked.postgres else in_sqlite)(asked, folder) as (savers, durability, server):
        await measure_with(asked, savers, durability, server)


async def measure_with(asked, savers, durability, server):
    ones = [{"W1": tool_round, "W2": approval}[asked.workload](saver, asked.durability) for saver in savers]
    for _ in range(WARM_UP_COUNT):
        await ones[0]()
    server_cpu = server() if server else 0
    cpu, written = time.process_time(), bytes_written()
    runs, seconds = await lanes(ones, asked.lanes, asked.seconds)
    cpu, written = time.process_time() - cpu, bytes_written() - written

    figures = {
        "runs_per_s": len(runs) / seconds,
        "cpu_ms_per_run": cpu / len(runs) * 1e3,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if not server:
        figures["bytes_written_per_run"] = written / len(runs)
    else:
        figures["server_cpu_ms_per_run"] = (server() - server_cpu) / len(runs) * 1e3
    for what in runs[0]:
        for percent in (50, 99):
            figures[f"{what}_p{percent}_ms"] = percentile([run[what] for run in runs], percent) * 1e3
    package = "langgraph-checkpoint-postgres" if asked.postgres else "langgraph-checkpoint-sqlite"
    for metric, value in figures.items():
        line = {
            "version": f"langgraph {version('langgraph')}, saver {version(package)}",
            "workload": asked.workload,
            "metric": metric,
            "value": value,
            "lanes": asked.lanes,
            "run_count": len(runs),
            "durability": f"{asked.durability}, {durability}",
        }
        print(json.dumps(line), flush=True)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("workload", choices=["W1", "W2"])
    words.add_argument("folder")
    words.add_argument("--seconds", type=float, default=3)
    words.add_argument("--lanes", type=int, default=64)
    words.add_argument("--durability", choices=["sync", "async"], default="sync")
    words.add_argument("--synchronous", choices=["full", "normal"], default="full")
    words.add_argument("--postgres", help="the address of a server")
    words.add_argument("--savers", type=int, default=1, help="a saver lets one of its runs at a time to the database")
    asked = words.parse_args()
    folder = tempfile.mkdtemp(dir=asked.folder)
    try:
        asyncio.run(measure(asked, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
