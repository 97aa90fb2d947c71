"""The catalogue of labels as a page for people who write workflows: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpufleet import quantity
from gpufleet_stacks.settings.problems import listed
from gpufleet_tools.labels.catalogue import (
    Catalogue,
    LabelEntry,
    gpu_words,
    runner_words,
    status_words,
)

_STYLE = """\
:root {
  color-scheme: light dark;
  --page: #f6f8fa; --card: #fff; --text: #1f2328; --quiet: #59636e; --line: #d1d9e0; --link: #0969da;
  --warning: #7d4e00; --warning-line: #d4a72c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --card: #151b23; --text: #f0f6fc; --quiet: #9198a1; --line: #3d444d; --link: #4493f8;
    --warning: #e3b341; --warning-line: #9e6a03;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem; max-width: 80rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { margin: 0; font-size: 1.5rem; }
h2 { margin: 0; font-size: 1.125rem; }
p { margin: .5rem 0; max-width: 45rem; }
code { font: .9375em ui-monospace, monospace; }
a { color: var(--link); }
main {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1rem;
  margin: 1.5rem 0;
}
article { padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .25rem .75rem; margin: .75rem 0 0; }
dt, footer { color: var(--quiet); }
dd { margin: 0; }
.deprecated { border-color: var(--warning-line); }
.warning { color: var(--warning); }
"""


def html(entries: Catalogue) -> str:
    """Return the page. It has no script, and loads nothing."""
    labels = sorted({entry.label for entry in entries.labels})
    stacks = sorted({entry.stack for entry in entries.labels})
    count = f"{len(labels)} label{'s' * (len(labels) != 1)}" + (f" of {listed(stacks, 'and')}" if stacks else "")
    cards = "".join(_card(entry) for entry in entries.labels)
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Runner labels</title>
<style>
{_STYLE}</style>
</head>
<body>
<header>
<h1>Runner labels</h1>
<p>{escape(count)}. A job asks for runners by their label, such as
<code>runs-on: {escape(_example(labels))}</code>. A job with a misspelt label does not fail: it queues for 24 hours.</p>
</header>
<main>
{cards}</main>
<footer>
<p>Jobs that find no room wait until others end. A job may run for 6 hours, or as long as its
<code>timeout-minutes</code> says. GitHub cancels a job that has waited for 24 hours.</p>
</footer>
</body>
</html>
"""


def _example(labels: Sequence[str]) -> str:
    return labels[0] if labels else "LABEL"


def _card(entry: LabelEntry) -> str:
    deprecated = entry.status == "deprecated"
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>\n" for name, text in _rows(entry))
    status = f'<p class="warning">{escape(status_words(entry).capitalize())}</p>\n' if deprecated else ""
    return f"""\
<article{' class="deprecated"' if deprecated else ""}>
<h2><code>{escape(entry.label)}</code></h2>
{status}<dl>
{rows}</dl>
</article>
"""


def _rows(entry: LabelEntry) -> Iterator[tuple[str, str]]:
    """Yield the facts about a label: name, and HTML."""
    cores, memory = quantity.cores(quantity.parsed(entry.cpu)), quantity.gibibytes(quantity.parsed(entry.memory))
    yield "GPUs", escape(gpu_words(entry))
    yield "CPU, memory", escape(f"{cores} cores, {memory}")
    yield "Architecture", escape(entry.architecture or "unknown")
    yield "Nodes", _nodes(entry)
    yield "Containers", _containers(entry)
    yield "At once", escape(_room(entry))
    yield "Jobs of", _link(entry.config_url)
    if entry.additional_labels:
        yield "More labels", ", ".join(f"<code>{escape(label)}</code>" for label in entry.additional_labels)
    if entry.runner_group:
        yield "Runner group", escape(entry.runner_group)
    yield "Cluster", escape(entry.cluster)
    yield "Runner", escape(runner_words(entry.runner_version, entry.no_jobs_from))
    if entry.owner or entry.contact:
        yield "Ask", ", ".join(_link(text) for text in (entry.owner, entry.contact) if text)


def _nodes(entry: LabelEntry) -> str:
    if not entry.capacity:
        return "machines of the cluster"
    text = f"{escape(listed(entry.capacity, 'or'))}, provisioned when jobs wait"
    if "spot" in entry.capacity:
        text += '. <span class="warning">AWS reclaims spot nodes with two minutes of notice; their jobs fail.</span>'
    return text


def _containers(entry: LabelEntry) -> str:
    if entry.docker is None:
        return "none: no <code>container:</code>, no <code>services:</code>, no <code>docker</code>"
    if entry.docker == "sidecar":
        return "Docker: <code>container:</code>, <code>services:</code>, <code>docker</code>"
    every = "every job needs <code>container:</code>; " if entry.requires_container else ""
    return f"<code>container:</code> and <code>services:</code> as pods; {every}no <code>docker</code>"


def _room(entry: LabelEntry) -> str:
    most = f"at most {entry.at_most} job{'s' * (entry.at_most != 1)}"
    if entry.guaranteed is None:
        return most
    if entry.guaranteed >= entry.at_most:
        return f"{most}, which always find room"
    if entry.guaranteed:
        return f"{most}; {entry.guaranteed} always find room"
    rivals = f" of {listed(entry.limited_by, 'or')}" if entry.limited_by else ""
    return f"{most}; jobs{rivals or ' of other labels'} can leave no room for any"


def _link(text: str) -> str:
    """Return a text, as a link if it is a web address."""
    if not text.startswith(("https://", "http://")):
        return escape(text)
    return f'<a href="{escape(text)}">{escape(text.partition("://")[2])}</a>'
