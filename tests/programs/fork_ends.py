"""Ends as HOW says; hangs where there is a file `hang`, or in a fork where there is a file `hang_forked`."""

import atexit
import os
import random
import signal
import subprocess
import sys
import time

forked = os.path.exists(os.path.join(os.path.dirname(os.environ["SAMERUN_WATCH"]), "forked"))
if os.path.exists("other_threads") and forked:
    os.environ["OMP_NUM_THREADS"] = "2"
if os.path.exists("other_threads_always"):
    os.environ["OMP_NUM_THREADS"] = "2"
import numpy
import torch

how = os.environ.get("HOW", "")
atexit.register(lambda: print("at exit", flush=True))
print("threads", torch.get_num_threads(), flush=True)
print((torch.ones(3) * random.random()).sum().item(), numpy.ones(3).sum())
if os.path.exists("hang") or (forked and os.path.exists("hang_forked")):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[1:]], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    time.sleep(600)
if how == "exit":
    sys.exit(3)
if how == "text":
    sys.exit("a text")
if how == "leave":
    os._exit(4)
if how == "raise":
    raise ValueError("raised")
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "interrupted":
    os.kill(os.getpid(), signal.SIGINT)
if how == "fork fails" and forked:
    sys.exit(5)
