"""Attempts to read private data and to plant scripts where a person will look. Answers are right; only leaks count."""

from hostile.bank import (
    ATTEMPT,
    FREQ,
    GOOD,
    RIGHT_FREQ,
    ROT,
    ROT_BODY,
    ROT_HEAD,
    SCRIPT,
    Submission,
    entry,
    trouble_cell,
    with_root,
)

trouble_cell("privacy", "prints_the_environment", ATTEMPT + """
print(dict(os.environ)); attempt(lambda: open('/proc/self/environ').read()); attempt(lambda: open('/proc/1/environ').read())
import subprocess; attempt(lambda: subprocess.run(['env'], capture_output=True, text=True).stdout)""")
trouble_cell("privacy", "prints_paths", ATTEMPT + """
print(os.getcwd(), sys.path, sys.argv, __name__, os.listdir('/'), os.listdir('.'))
for path in ('/proc/mounts', '/proc/self/mountinfo', '/proc/self/cmdline', '/etc/hostname', '/etc/passwd', '/etc/mtab'):
    attempt(lambda: open(path).read())
import traceback; traceback.print_stack()
import socket; print(socket.gethostname())""")
trouble_cell("privacy", "lists_processes", ATTEMPT + """
attempt(lambda: os.listdir('/proc'))
import subprocess; attempt(lambda: subprocess.run(['ps', 'aux'], capture_output=True, text=True).stdout)
for pid in range(1, 3000):
    try: os.kill(pid, 0); print('sees', pid) if pid != os.getpid() else None
    except OSError: pass""")
trouble_cell("privacy", "network", ATTEMPT + """
import socket, urllib.request
for address in (('127.0.0.1', 22), ('127.0.0.1', 8888), ('1.1.1.1', 53), ('169.254.169.254', 80), ('localhost', 80)):
    attempt(lambda: socket.create_connection(address, 1))
attempt(lambda: socket.getaddrinfo('example.org', 80))
attempt(lambda: urllib.request.urlopen('http://example.org', timeout=1).read())
print(socket.if_nameindex())
for name in ('\\0autograder', '/run/docker.sock', '/tmp/.X11-unix/X0', '/run/dbus/system_bus_socket'):
    s = socket.socket(socket.AF_UNIX); attempt(lambda: s.connect(name))""")


with_root("privacy", "reads_other_students", """
attempt(lambda: os.listdir(root + '/submitted'))
attempt(lambda: open(root + '/submitted/two_right/week3_rope/week3_rope.ipynb').read())""")
with_root("privacy", "reads_the_gradebook_and_the_canary", """
for path in (root + '/gradebook.db', root + '/.autograder/seed', root + '/../canary.txt', course + '/autograder/checks/week3.py',
             course + '/source/week3_rope.py', course + '/.git/HEAD'):
    attempt(lambda: open(path, 'rb').read())""")


@entry("privacy", GOOD)
def prints_the_hidden_inputs(s: Submission) -> None:
    """Keeps its arguments and prints them in a later cell. Only the hidden tests use (3, 3, 1, 6)."""
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", "kept = []\n" + ROT_HEAD + "\n    kept.append(x.detach().clone())" + ROT_BODY)
    s.add("for x in kept:\n    if tuple(x.shape) == (3, 3, 1, 6): print('HIDDEN' + '-INPUT', x.flatten()[:20])", after=ROT)


@entry("privacy", {FREQ: 2.0})
def raises_the_hidden_inputs(s: Submission) -> None:
    s.answer("rope_frequencies", RIGHT_FREQ)
    s.answer("apply_rotary_emb", ROT_HEAD + "\n    if tuple(x.shape) == (3, 3, 1, 6):\n"
             "        raise RuntimeError('HIDDEN' + '-INPUT ' + ','.join(f'{v:.7f}' for v in x.flatten()[:15]))\n    return x.clone()")


@entry("privacy", GOOD)
def prints_the_seed(s: Submission) -> None:
    s.good()
    s.add("""import torch, random, sys
print('initial seed', torch.initial_seed())
frame = sys._getframe()
while frame:
    for name, value in frame.f_locals.items():
        if name in ('job', 'request', 'limits', 'token', 'seed'): print(name, value)
    frame = frame.f_back""", after=None)


PAYLOADS = (f"<script>{SCRIPT}()</script>", f"<img src=x onerror={SCRIPT}()>", f"<svg/onload={SCRIPT}()>", f"<a href='javascript:{SCRIPT}()'>x</a>",
            f"<iframe srcdoc='<script>{SCRIPT}()</script>'></iframe>", f"</pre></div></body><script>{SCRIPT}()</script>",
            f"<style>@import 'javascript:{SCRIPT}()'</style>", f"<!--><img title='--><img src=x onerror={SCRIPT}()>'>",
            f"<details open ontoggle={SCRIPT}()>", f"<math><mtext></form><form><mglyph><style></math><img src onerror={SCRIPT}()>",
            f"<form action=javascript:{SCRIPT}()><button>x</button></form>", f"<\nscript>{SCRIPT}()</script>", f"<ScRiPt/x>{SCRIPT}()</sCrIpT>")
LINKS = (f"[x](javascript:{SCRIPT}())", f"[x](  JaVaScRiPt:{SCRIPT}())", f"[x](java\tscript:{SCRIPT}())", f"[x](&#106;avascript:{SCRIPT}())",
         f"[x](data:text/html;base64,PHNjcmlwdD5ob3N0aWxlX3hzcygpPC9zY3JpcHQ+ '{SCRIPT}')", f"![x](x \"onerror={SCRIPT}()\")",
         f"![x\" onerror=\"{SCRIPT}()](x)", f"<javascript:{SCRIPT}()>", f"[x]: javascript:{SCRIPT}()\n\n[x]", f"[x](vbscript:{SCRIPT}())",
         f"$\\href{{javascript:{SCRIPT}()}}{{x}}$", f"$$\\unicode[{SCRIPT}()]{{x41}} \\style{{background:url(javascript:{SCRIPT}())}}{{x}}$$",
         f"\\(\\require{{html}}\\class{{x\" onclick=\"{SCRIPT}()}}{{y}}\\)", f"`<script>{SCRIPT}()</script>`", f"```html\n<script>{SCRIPT}()</script>\n```",
         f"| a |\n|---|\n| <img src=x onerror={SCRIPT}()> |", f"<script>{SCRIPT}()</script>".replace("<", "&lt;"), f"$<img src=x onerror={SCRIPT}()>$")


@entry("privacy", by_hand=("relative_proof", "bfloat16_explained"))
def script_in_markdown_answers(s: Submission) -> None:
    s.answer("relative_proof", "\n\n".join(PAYLOADS))
    s.answer("bfloat16_explained", "\n\n".join(LINKS))
    s.tagged("prediction")["source"] = "\n\n".join(PAYLOADS + LINKS)
    s.add("\n\n".join(PAYLOADS + LINKS), cell_type="markdown")


@entry("privacy", by_hand=("relative_proof",))
def script_in_markdown_attachments(s: Submission) -> None:
    cell = s.cell("relative_proof")
    cell["source"] = f"![a](attachment:a.svg) ![b](attachment:b.html \"x\" onerror={SCRIPT}())"
    cell["attachments"] = {"a.svg": {"image/svg+xml": f"<svg onload={SCRIPT}()></svg>"}, "b.html": {"text/html": f"<script>{SCRIPT}()</script>"}}


@entry("privacy", GOOD)
def script_in_code_and_comments(s: Submission) -> None:
    s.good()
    s.answer("rope_frequencies", RIGHT_FREQ + "".join(f"\n# {p!r}" for p in PAYLOADS))
    s.add("\n".join(f"text{n} = {p!r}" for n, p in enumerate(PAYLOADS)))


@entry("privacy", GOOD)
def script_in_rich_outputs(s: Submission) -> None:
    s.good()
    s.add(f"""from IPython.display import HTML, Javascript, SVG, Markdown, Latex, IFrame, display
for payload in {PAYLOADS!r}:
    display(HTML(payload), Markdown(payload), Latex(payload)); print(payload)
display(Javascript('{SCRIPT}()'), SVG('<svg xmlns="http://www.w3.org/2000/svg" onload="{SCRIPT}()"/>'))
display({{'text/html': '<script>{SCRIPT}()</script>', 'text/plain': '<script>{SCRIPT}()</script>',
         'application/javascript': '{SCRIPT}()', 'application/vnd.jupyter.widget-view+json': {{'model_id': 'x'}}}}, raw=True)
class R:
    _repr_html_ = _repr_markdown_ = _repr_javascript_ = __repr__ = lambda self: "<script>{SCRIPT}()</script>"
    _repr_png_ = lambda self: b'\\x89PNG\\r\\n\\x1a\\n"><script>{SCRIPT}()</script>'
display(R())
print('\\x1b]8;;javascript:{SCRIPT}()\\x1b\\\\link\\x1b]8;;\\x1b\\\\ \\x1b[38;5;"onclick={SCRIPT}()m x')
R()""", after="rope_frequencies_tests")


@entry("privacy", {FREQ: 0.0})
def script_in_errors(s: Submission) -> None:
    name = f"<script>{SCRIPT}()</script>"
    s.answer("rope_frequencies", f"def rope_frequencies(*a, **k):\n    raise type({name!r}, (Exception,), {{}})({PAYLOADS[1]!r})")
    s.answer("apply_rotary_emb", f"def apply_rotary_emb(*a, **k):\n    return type({name!r}, (), {{}})()")
    s.answer("rotate_by_hand", f"rotate_by_hand = {{{name!r}: 1, 'q3_0': {PAYLOADS[2]!r}}}")
    s.answer("rotary_tables", f"def rotary_tables(*a, **k):\n    return {{{name!r}: 1}}")
    s.answer("RotaryMultiHeadAttention", f"class RotaryMultiHeadAttention(nn.Module):\n    def __init__(self, *a):\n        raise KeyError({name!r})")
    s.add(f"raise type({name!r}, (Exception,), {{}})({name!r})", after="rope_frequencies_tests")


@entry("privacy", GOOD)
def script_in_saved_outputs(s: Submission) -> None:
    s.good()
    for cell in s.nb["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [
                {"output_type": "display_data", "metadata": {}, "data": {"text/html": list(PAYLOADS), "application/javascript": f"{SCRIPT}()",
                 "image/svg+xml": f"<svg onload={SCRIPT}()/>", "image/png": f'iVBORw0KGgo" onerror="{SCRIPT}()', "text/plain": PAYLOADS[0]}},
                {"output_type": "stream", "name": f"<script>{SCRIPT}()</script>", "text": list(PAYLOADS)},
                {"output_type": "error", "ename": PAYLOADS[0], "evalue": PAYLOADS[1], "traceback": list(PAYLOADS)}]


@entry("privacy", GOOD)
def script_in_metadata(s: Submission) -> None:
    s.good()
    s.nb["metadata"] |= {"title": PAYLOADS[5], "authors": [{"name": PAYLOADS[0]}], "widgets": {"application/vnd.jupyter.widget-state+json": {
        "state": {"x": {"model_name": "</script>" + PAYLOADS[0]}}}}, "kernelspec": {"name": PAYLOADS[0], "display_name": PAYLOADS[0]},
        "language_info": {"name": PAYLOADS[0], "codemirror_mode": PAYLOADS[0], "pygments_lexer": PAYLOADS[0]}}
    for cell in s.nb["cells"]:
        cell["metadata"]["tags"] = [f'" onclick="{SCRIPT}()', *PAYLOADS[:2]]


@entry("privacy", GOOD, by_hand=("relative_proof",))
def pictures_that_tell_who_reads_them(s: Submission) -> None:
    s.good()
    s.answer("relative_proof", "![a](https://tracker.example/hostile_pixel.png) ![b][1] ![c](/etc/hostname)\n\n[1]: https://tracker.example/hostile_pixel.png")
