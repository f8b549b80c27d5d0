"""Attempts to write where it is forbidden and to outlive the run. The answers are right, so a broken grader shows."""

from hostile.bank import CANARY, GOOD, RIGHT_FREQ, RIGHT_ROT, Submission, entry, trouble_cell

ATTEMPT = """import os, sys
def attempt(f):
    try:
        return f()
    except BaseException as error:
        print(type(error).__name__)
"""


def with_root(name: str, source: str) -> None:
    """Like ``trouble_cell``, but the student even knows where the course root is."""

    def make(submission: Submission) -> None:
        submission.good()
        submission.add(ATTEMPT + f"root = {str(submission.root)!r}\n" + source, after="rope_frequencies_tests")

    make.__name__ = name
    entry("writing", GOOD)(make)


with_root("writes_the_gradebook", """
attempt(lambda: open(root + '/gradebook.db', 'r+b').write(b'x' * 1000))
attempt(lambda: os.remove(root + '/gradebook.db'))
import sqlite3
attempt(lambda: sqlite3.connect(root + '/gradebook.db').execute('update grade set auto_score = 6'))""")
with_root("writes_other_submissions", """
import glob, shutil
for path in glob.glob(root + '/submitted/*/*/*.ipynb') + [root + '/submitted/two_right/week3_rope/week3_rope.ipynb']:
    attempt(lambda: open(path, 'w').write('{}'))
attempt(lambda: shutil.rmtree(root + '/submitted'))""")
with_root("writes_its_own_result", """
for path in ('/autograded/writes_its_own_result/week3_rope/week3_rope.ipynb', '/feedback/x.html', '/.autograder/pending/x', '/.autograder/seed'):
    attempt(lambda: os.makedirs(os.path.dirname(root + path), exist_ok=True))
    attempt(lambda: open(root + path, 'w').write('6 of 6'))""")
with_root("writes_the_course", """
for path in (root + '/source/week3_rope/week3_rope.ipynb', '/sandbox/worker/fork_server.py', '/sandbox/worker/wire.py', sys.executable,
             torch.__file__, '/etc/hosts', '/usr/x', '/dev/x', '/proc/x'):
    attempt(lambda: open(path, 'a').write('x'))
    attempt(lambda: os.chmod(path, 0o777))
    attempt(lambda: os.rename(path, path + '.old'))""")

trouble_cell("writing", "mounts_and_chroots", ATTEMPT + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs('/tmp/m', exist_ok=True)
for call in (lambda: libc.mount(b'tmpfs', b'/usr', b'tmpfs', 0, None), lambda: libc.mount(b'/', b'/tmp/m', None, 4096, None),
             lambda: libc.umount2(b'/proc', 2), lambda: libc.unshare(0x10000000 | 0x20000), lambda: libc.chroot(b'/tmp/m'),
             lambda: libc.sethostname(b'x', 1), lambda: libc.setuid(0), lambda: libc.pivot_root(b'/tmp/m', b'/tmp/m')):
    if os.fork() == 0:
        call(); os._exit(0)
    os.wait()""")

trouble_cell("writing", "writes_to_its_descriptors", ATTEMPT + """
for fd in (0, 1, 2, 4, 5, 6, 7):
    attempt(lambda: os.write(fd, b'{"ready": false, "failed": "the sandbox is broken"}\\n' * 100))
    attempt(lambda: os.ftruncate(fd, 0))""")

trouble_cell("writing", "files_in_tmp", ATTEMPT + f"""
for folder in ('/tmp', '/dev/shm', '/var/tmp', '/run', os.getcwd(), os.path.expanduser('~')):
    attempt(lambda: open(folder + '/{CANARY}', 'w').write('left behind'))
attempt(lambda: os.symlink('/', '/tmp/{CANARY}_link'))
attempt(lambda: os.mkfifo('/tmp/{CANARY}_fifo'))""")

DAEMON = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        %s
        os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(500)  # {CANARY}'])
    os._exit(0)
"""
trouble_cell("writing", "daemon", DAEMON % "pass")
trouble_cell("writing", "daemon_without_death_signal", DAEMON % "import ctypes; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)")
trouble_cell("writing", "thread_that_goes_on", """
import threading, time
def go():
    while True: time.sleep(0.01)
for _ in range(5): threading.Thread(target=go).start()""")
trouble_cell("writing", "nohup_and_at", f"""
import subprocess, os
for command in ('nohup sleep 500 # {CANARY}', 'echo x | at now', '(crontab -l; echo x) | crontab -', 'setsid sleep 500'):
    subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)""")


@entry("writing", GOOD)
def refuses_to_end(s: Submission) -> None:
    """Ignores all signals, has no death signal, and never reads the end of its connection."""
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", RIGHT_ROT)
    s.add("""
import ctypes, signal, threading, time, os
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
import wire
real = wire.Connection.receive
def receive(self, *a, **k):
    try:
        return real(self, *a, **k)
    except wire.WireError:
        while True: time.sleep(1)
wire.Connection.receive = receive""", after="decode_step_scores_tests")


@entry("writing", GOOD)
def ptrace_and_kill_the_server(s: Submission) -> None:
    s.good()
    s.add("""
import ctypes, os, signal
libc = ctypes.CDLL(None)
for pid in list(range(0, 40)) + [os.getppid()]:
    if pid not in (0, 1, os.getpid()):
        libc.ptrace(16, pid, 0, 0)
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
for path in ('/proc/1/mem', '/proc/self/mem', '/dev/mem', '/dev/kmem', '/dev/kmsg'):
    try: open(path, 'rb').read(10)
    except OSError: pass""", after="rope_frequencies_tests")
