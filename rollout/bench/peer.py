"""The rollout benchmark's peer: the same workload by asyncio and the openai client.

    python peer.py URL TRAJECTORIES CONCURRENCY

Measured with Python 3.11, openai 3.57.0, httpx 0.28.1. Prints one JSON object:
trajectories that ended with an answer, and seconds.
"""

import asyncio
import json
import re
import sys
import time

import httpx
from openai import AsyncOpenAI

url, total, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SYSTEM = "You answer questions with search tools. Think first, then call a tool or answer."
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.S)


async def trajectory(client, http, i):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Question: Which river flows through town {i}?"}]
    for turn in range(4):
        r = await client.chat.completions.create(model="bench", messages=messages, temperature=1, top_p=1, max_tokens=1024, seed=i * 8 + turn)
        text = r.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
        call = CALL.search(text)
        if not call:
            return bool(ANSWER.search(text))
        queries = json.loads(call.group(1))["arguments"]["query_list"]
        found = (await http.post(url + "/retrieve", json={"queries": queries, "topk": 3, "return_scores": True})).json()["result"]
        lines = []
        for hits in found:
            for k, h in enumerate(hits):
                title, _, rest = h["document"]["contents"].partition("\n")
                lines.append(f"Doc {k + 1}: (Title: {title}) {rest}")
        messages.append({"role": "tool", "content": "\n".join(lines)})
    return False


async def main():
    limits = httpx.Limits(max_connections=width, max_keepalive_connections=width)
    gate = asyncio.Semaphore(width)
    async with httpx.AsyncClient(limits=limits, timeout=60) as http, httpx.AsyncClient(limits=limits, timeout=60) as inner:
        client = AsyncOpenAI(base_url=url + "/v1", api_key="none", http_client=inner, max_retries=5)

        async def one(i):
            async with gate:
                return await trajectory(client, http, i)

        began = time.time()
        done = await asyncio.gather(*(one(i) for i in range(total)))
        print(json.dumps({"answered": sum(done), "seconds": time.time() - began}))


asyncio.run(main())
