"""Attempts to write where it is forbidden and to outlive the run. The answers are right, so a broken grader shows."""

from hostile.bank import ATTEMPT, CANARY, GOOD, Submission, entry, trouble_cell, with_root

with_root("writing", "writes_the_gradebook", """
attempt(lambda: open(root + '/gradebook.db', 'r+b').write(b'x' * 1000))
attempt(lambda: os.remove(root + '/gradebook.db'))
import sqlite3
attempt(lambda: sqlite3.connect(root + '/gradebook.db').execute('update grade set auto_score = 6'))""")
with_root("writing", "writes_other_submissions", """
import glob, shutil
for path in glob.glob(root + '/submitted/*/*/*.ipynb') + [root + '/submitted/two_right/week3_rope/week3_rope.ipynb']:
    attempt(lambda: open(path, 'w').write('{}'))
attempt(lambda: shutil.rmtree(root + '/submitted'))""")

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
