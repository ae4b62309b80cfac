"""W1 and W2 with LangGraph and its SQLite saver: one repetition, as JSON lines.

  langgraph_rounds.py W1|W2 FOLDER --seconds S --lanes N --durability sync|async --synchronous full|normal

A model that is fake, instantaneous and in the process; texts of 64 bytes, like those of the others.
"""

import argparse
import asyncio
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
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

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


async def lanes(one, lane_count, seconds):
    runs, begin = [], time.perf_counter()

    async def lane():
        while time.perf_counter() - begin < seconds:
            runs.append(await one())

    await asyncio.gather(*[lane() for _ in range(lane_count)])
    return runs, time.perf_counter() - begin


def percentile(samples, percent):
    ordered = sorted(samples)
    return ordered[max(1, -(-len(ordered) * percent // 100)) - 1]


def bytes_written():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


async def measure(asked, folder):
    connection = await aiosqlite.connect(os.path.join(folder, "checkpoints.db"))
    if asked.synchronous == "normal":
        await connection.execute("PRAGMA synchronous=NORMAL")
    saver = AsyncSqliteSaver(connection)
    await saver.setup()
    pragmas = {}
    for name in ("journal_mode", "synchronous"):
        async with connection.execute(f"PRAGMA {name}") as rows:
            pragmas[name] = (await rows.fetchone())[0]
    one = {"W1": tool_round, "W2": approval}[asked.workload](saver, asked.durability)
    for _ in range(WARM_UP_COUNT):
        await one()
    cpu, written = time.process_time(), bytes_written()
    runs, seconds = await lanes(one, asked.lanes, asked.seconds)
    cpu, written = time.process_time() - cpu, bytes_written() - written
    await connection.close()

    figures = {
        "runs_per_s": len(runs) / seconds,
        "cpu_ms_per_run": cpu / len(runs) * 1e3,
        "bytes_written_per_run": written / len(runs),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    for what in runs[0]:
        for percent in (50, 99):
            figures[f"{what}_p{percent}_ms"] = percentile([run[what] for run in runs], percent) * 1e3
    for metric, value in figures.items():
        line = {
            "version": f"langgraph {version('langgraph')}, saver {version('langgraph-checkpoint-sqlite')}",
            "workload": asked.workload,
            "metric": metric,
            "value": value,
            "lanes": asked.lanes,
            "run_count": len(runs),
            "durability": f"{asked.durability}, {pragmas['journal_mode']}, synchronous={pragmas['synchronous']}",
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
    asked = words.parse_args()
    folder = tempfile.mkdtemp(dir=asked.folder)
    try:
        asyncio.run(measure(asked, folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
